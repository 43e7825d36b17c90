"""``memlite bench multigets``: gets of several keys, from several nodes or from one."""

__all__: list[str] = []
