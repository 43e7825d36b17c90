"""Several nodes: the topology, and the command that says where a key lives."""

__all__: list[str] = []
