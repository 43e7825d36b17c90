"""Counters, measurements and the rendering of statistics."""

__all__: list[str] = []
