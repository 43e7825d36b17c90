"""Clients: what puts a workload on a server, and writes down how that went."""

__all__: list[str] = []
