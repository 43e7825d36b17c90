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
                payload = self._listing()
                return _NOT_LISTED if payload is None else config_reply(b"cluster", payload)
            case [b"get", b"topology"]:
                return config_reply(b"topology", self._description())
        return replies.ERROR

    def item(self, *, with_unique: bool) -> bytes:
        """Return the reply to ``get AmazonElastiCache:cluster``, or to ``gets``."""
        payload = self._listing()
        if payload is None:
            return _NOT_LISTED
        return item_reply(payload, self._cluster.version if with_unique else None)

    def _listing(self) -> bytes | None:
        """Return what plain clients understand; None if it would lack nodes.

        Clients that know of fewer nodes than the others place their keys elsewhere.
        """
        nodes = []
        for node in self._cluster.nodes:
            address = node.address
            if address.path:
                return None
            nodes.append((address.host, _ip(address.host) or node.ip, address.port))
        return listing(self._cluster.version, nodes)

    def _description(self) -> bytes:
        """Return what `memlite.client.ClusterClient` needs to place keys as the proxy does."""
        topology = self._cluster.topology
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
