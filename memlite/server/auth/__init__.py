"""Authentication: users, login attempts and their throttling."""

__all__: list[str] = []
