"""Memory kept in order while commands are served."""

__all__: list[str] = []
