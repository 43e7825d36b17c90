"""The proxy: forwards commands to the nodes that have their keys.

It is another executor behind the server's connections: clients are served by
`memlite.server.connections`, and requests are forwarded as the bytes that arrived. The usual ones
are recognised (`recognizer`); all others are found by the server's parsers.
"""

__all__: list[str] = []
