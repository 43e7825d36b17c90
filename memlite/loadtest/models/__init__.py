"""``memlite bench models``: queueing models of what was measured, and how far they hold."""

__all__: list[str] = []
