"""What a proxy says of its nodes, so that clients can go to them directly."""

import ipaddress
import json
from typing import Final

from memlite.protocol import replies
from memlite.protocol.discovery import config_reply, item_reply, listing
from memlite.proxy.cluster import Cluster

__all__ = ["Discovery"]

_NOT_LISTED: Final = b"SERVER_ERROR nodes on UNIX sockets cannot be listed\r\n"


class Discovery:
    """Answers ``config get cluster``, its old form, and ``config get topology``.

    Args:
        cluster: the nodes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def config(self, words: list[bytes]) -> bytes:
        """Return the reply to a ``config`` command, of which these are the words."""
        match words[1:3]:
            case [b"get", b"cluster"]:
                return self._refusal() or config_reply(b"cluster", self._listing())
            case [b"get", b"topology"]:
                return self._cluster.refusal or config_reply(b"topology", self._description())
        return replies.ERROR

    def item(self, *, with_unique: bool) -> bytes:
        """Return the reply to ``get AmazonElastiCache:cluster``, or to ``gets``."""
        unique = self._cluster.version if with_unique else None
        return self._refusal() or item_reply(self._listing(), unique)

    def _refusal(self) -> bytes | None:
        """Return why the nodes are not listed; None if they are.

        Clients that know of fewer nodes than the others place their keys elsewhere.
        """
        if any(node.address.path for node in self._cluster.nodes):
            return _NOT_LISTED
        return self._cluster.refusal

    def _listing(self) -> bytes:
        """Return what plain clients understand."""
        nodes = []
        for node in self._cluster.nodes:
            host, port = node.address.host, node.address.port
            nodes.append((host, _ip(host) or node.ip, port))
        return listing(self._cluster.version, nodes)

    def _description(self) -> bytes:
        """Return what `memlite.client.ClusterClient` needs to place keys as the proxy does."""
        topology = self._cluster.topology
        assert topology is not None  # noqa: S101 - the cluster does not refuse
        nodes = [
            {"name": node.name, "address": str(node.address), "weight": node.weight}
            for node in topology.nodes
        ]
        text = json.dumps({"hash": topology.hash, "hash_tag": topology.hash_tag, "nodes": nodes})
        return f"{self._cluster.version}\n{text}\n".encode()


def _ip(host: str) -> str:
    """Return the host if it is an IP address, else nothing."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""
