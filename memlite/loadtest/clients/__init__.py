"""Clients: they put a workload on a server and record how that went."""

__all__: list[str] = []
