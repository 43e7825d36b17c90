"""The proxy: forwards commands to the nodes that have their keys.

It is another executor behind the server's connections: clients are served by
`memlite.server.connections`, requests are found by the server's parsers, and forwarded as the bytes
that arrived.
"""

__all__: list[str] = []
