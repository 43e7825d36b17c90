"""Clients, which put a workload on a server and record the results."""

__all__: list[str] = []
