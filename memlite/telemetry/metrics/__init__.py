"""Metrics: their meaning, how to read them from a snapshot, and how to write them for a monitor."""

__all__: list[str] = []
