"""Discovery of a proxy's nodes, so that clients can connect to them directly."""

from typing import Final

from memlite.cluster.discovery import description_of, listing_of
from memlite.cluster.topology import Topology
from memlite.protocol import replies
from memlite.protocol.discovery import config_reply, item_reply
from memlite.proxy.cluster import Cluster

__all__ = ["Discovery"]

_NOT_LISTED: Final = b"SERVER_ERROR nodes on UNIX sockets cannot be listed\r\n"
_WITH_REPLICAS: Final = (
    b"SERVER_ERROR nodes are not listed with replicas: changes must go through a proxy\r\n"
)
_MOVING: Final = (
    b"SERVER_ERROR nodes are not listed while keys move: requests must go through a proxy\r\n"
)
_WITH_HOT_KEYS: Final = (
    b"SERVER_ERROR nodes are not listed with hot keys: changes must go through a proxy\r\n"
)


class Discovery:
    """Answers ``config get cluster``, its old form, and ``config get topology``.

    Args:
        cluster: the nodes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def config(self, words: list[bytes]) -> bytes:
        """Return the reply to a ``config`` command, given its words."""
        match words[1:3]:
            case [b"get", b"cluster"]:
                return self._refusal() or config_reply(b"cluster", self._listing())
            case [b"get", b"topology"]:
                return self._hidden() or config_reply(b"topology", self._description())
        return replies.ERROR

    def item(self, *, with_unique: bool) -> bytes:
        """Return the reply to ``get AmazonElastiCache:cluster``, or to ``gets``."""
        unique = self._cluster.version if with_unique else None
        return self._refusal() or item_reply(self._listing(), unique)

    def _refusal(self) -> bytes | None:
        """Return the reply that says why the nodes are not listed; None if they are.

        Clients that know of fewer nodes than other clients would place keys elsewhere.
        """
        if any(node.address.path for node in self._cluster.nodes):
            return _NOT_LISTED
        return self._hidden()

    def _hidden(self) -> bytes | None:
        """Return the reply that says why clients must not bypass the proxy; None if they may.

        A client that changes a key at its primary alone would leave old copies on the replicas. A
        client that changes a key while it moves would lose the change.
        """
        if self._cluster.replicas is not None:
            return _WITH_REPLICAS
        if self._cluster.moving is not None:
            return self._cluster.refusal or _MOVING
        return _WITH_HOT_KEYS if self._cluster.hot.active else self._cluster.refusal

    def _listing(self) -> bytes:
        """Return the listing for plain clients."""
        ips = {node.name: node.ip for node in self._cluster.nodes}
        return listing_of(self._cluster.version, self._topology(), lambda node: ips[node.name])

    def _description(self) -> bytes:
        """Return the data with which `memlite.client.ClusterClient` places keys like the proxy."""
        return description_of(self._cluster.version, self._topology())

    def _topology(self) -> Topology:
        topology = self._cluster.topology
        assert topology is not None  # noqa: S101 - the cluster does not refuse
        return topology
