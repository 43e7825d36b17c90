"""Clusters of nodes: the topology, and the ``memlite cluster`` command."""

__all__: list[str] = []
