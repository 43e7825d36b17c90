"""Command execution: immediate from memory, or pipelined on a store that must be awaited."""

__all__: list[str] = []
