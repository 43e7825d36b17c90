"""The proxy: forwards commands to the nodes that have their keys.

It is another executor behind the server's connections: `memlite.server.connections` serves
clients, and requests are forwarded as the bytes that arrived. `recognizer` recognises the usual
requests; the server's parsers find all others.
"""

__all__: list[str] = []
