"""The names of nodes that have none of their own."""

from typing import Final

__all__ = ["node_name"]

_PORT: Final = 11211


def node_name(host: str, port: int, hash_name: str) -> str:
    """Return the name that clients hash for a node that is known by its address alone.

    libmemcached and twemproxy leave out port 11211, pymemcache does not.

    Args:
        host: the node's host name or IP address.
        port: its port.
        hash_name: one of `memlite.routing.HASHES`.
    """
    if port == _PORT and hash_name.startswith("ketama"):
        return host
    return f"{host}:{port}"
