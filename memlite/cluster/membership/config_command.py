"""The command with which clients ask a node for the nodes of its cluster."""

from collections.abc import Callable
from typing import Final

from memlite.cluster.discovery import description_of, listing_of
from memlite.cluster.membership.document import Document
from memlite.protocol import replies
from memlite.protocol.discovery import config_reply
from memlite.server.admin.request import AdminRequest

__all__ = ["ConfigCommand"]

_NO_NODES: Final = b"SERVER_ERROR the cluster has no nodes\r\n"
_KEYS_MOVE: Final = (
    b"SERVER_ERROR nodes are not listed while keys move: requests must go through a proxy\r\n"
)
_WITH_HOT_KEYS: Final = (
    b"SERVER_ERROR nodes are not listed with hot keys: changes must go through a proxy\r\n"
)


_WITH_REPLICAS: Final = (
    b"SERVER_ERROR nodes are not listed with replicas: changes must go through a proxy\r\n"
)


class ConfigCommand:
    """Answers ``config get cluster`` and ``config get topology``; their version is the epoch.

    Args:
        document: returns the cluster as last read.
        resolved: returns the IP address of a host; empty if it is unknown.
    """

    def __init__(self, document: Callable[[], Document], resolved: Callable[[str], str]) -> None:
        self._document: Final = document
        self._resolved: Final = resolved

    def __call__(self, request: AdminRequest) -> bytes:
        """Carry out the command and return its reply."""
        words = request.words
        if len(words) < 3 or words[1] != b"get" or words[2] not in (b"cluster", b"topology"):
            return replies.ERROR
        document = self._document()
        topology = document.topology()
        if topology is None:
            return _NO_NODES
        if topology.move is not None:
            return _KEYS_MOVE
        if topology.replicas > 1:
            return _WITH_REPLICAS
        if topology.hot_keys:
            return _WITH_HOT_KEYS
        if words[2] == b"topology":
            return config_reply(b"topology", description_of(document.epoch, topology))
        listed = listing_of(
            document.epoch, topology, lambda node: self._resolved(node.address.host)
        )
        return config_reply(b"cluster", listed)
