"""Default names of nodes."""

from typing import Final

__all__ = ["node_name"]

_PORT: Final = 11211


def node_name(host: str, port: int, hash_name: str) -> str:
    """Return the name that clients hash for a node known only by its address.

    libmemcached and twemproxy omit port 11211; pymemcache does not.

    Args:
        host: the node's host name or IP address.
        port: its port.
        hash_name: one of `memlite.routing.HASHES`.
    """
    if port == _PORT and hash_name.startswith("ketama"):
        return host
    return f"{host}:{port}"
