"""Sockets, connections and the process around the engine."""

__all__: list[str] = []
