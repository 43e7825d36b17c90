"""Client connections: listening sockets, TLS, UDP, reading and writing."""

__all__: list[str] = []
