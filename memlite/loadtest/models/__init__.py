"""``memlite bench models``: queueing models of what was measured, and how far they hold."""
