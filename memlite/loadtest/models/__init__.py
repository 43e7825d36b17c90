"""``memlite bench models``: queueing models of measured targets, and where they hold."""

__all__: list[str] = []
