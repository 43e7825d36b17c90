"""Administrative commands: statistics, dumps, watchers and control of the server."""

__all__: list[str] = []
