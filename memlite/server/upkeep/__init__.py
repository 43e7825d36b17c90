"""Maintenance of memory while commands are served."""

__all__: list[str] = []
