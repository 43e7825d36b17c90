"""The command line: reads the settings and runs the server or another command."""

__all__: list[str] = []
