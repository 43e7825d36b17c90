"""Auto discovery: asking a server for the nodes of a cluster."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memlite.client.address import Address, parse_address
from memlite.client.connection import Connection
from memlite.client.errors import DiscoveryError
from memlite.client.replies import FENCE, Line, Reply, Shape
from memlite.core.errors import ConfigError
from memlite.routing import Member, Router, make_router, node_name

__all__ = ["ClusterMap", "MappedNode", "discover"]

_TOPOLOGY: Final = b"config get topology\r\n" + FENCE
_CLUSTER: Final = b"config get cluster\r\n" + FENCE
_OLD_FORM: Final = b"get AmazonElastiCache:cluster\r\n"
_MAX_NODES: Final = 1000
_PARTS_OF_A_TOPOLOGY: Final = {"hash", "hash_tag", "nodes"}


@dataclass(frozen=True, slots=True)
class MappedNode:
    """A node.

    Attributes:
        name: what is hashed.
        address: where it listens.
        weight: its share of the keys, relative to the other nodes.
    """

    name: str
    address: Address
    weight: int = 1


@dataclass(frozen=True, slots=True)
class ClusterMap:
    """The nodes of a cluster, and how keys are spread over them.

    Attributes:
        version: a number that increases with each change.
        nodes: the nodes.
        hash: one of `memlite.routing.HASHES`.
        hash_tag: the characters around the part of a key that is hashed; empty for none.
    """

    version: int
    nodes: tuple[MappedNode, ...]
    hash: str
    hash_tag: str

    def router(self) -> Router:
        """Return a router whose indexes are those of `nodes`.

        Raises:
            ConfigError: such a cluster is not possible.
        """
        members = [Member(node.name, node.weight) for node in self.nodes]
        return make_router(self.hash, members, self.hash_tag)


async def discover(connection: Connection, hash_name: str, hash_tag: str) -> ClusterMap:
    """Ask a server for its cluster: in memlite's form, then in ElastiCache's new and old ones.

    Args:
        connection: the connection to the server.
        hash_name: how keys are distributed, if the server does not say.
        hash_tag: likewise.

    Raises:
        ConnectionLostError: the connection was lost.
        DiscoveryError: the server lists no nodes, or none that can be used.
    """
    refusal = b"it lists no nodes"
    for request in (_TOPOLOGY, _CLUSTER, _OLD_FORM):
        shape = Shape.ITEMS if request is _OLD_FORM else Shape.FENCED
        reply = await connection.request(request, shape)
        lines = _payload(reply)
        if lines is not None:
            return _read(lines, request is _TOPOLOGY, hash_name, hash_tag)
        if reply.error not in (None, b"ERROR"):
            refusal = reply.error or b""
        if connection.lost is not None:  # as after a request for a password
            break
    raise DiscoveryError(refusal.decode("utf-8", "backslashreplace"))


def _payload(reply: Reply) -> Sequence[bytes] | None:
    """Return the lines of the payload; None if the reply has none."""
    if reply.items:
        return reply.items[0].value.split(b"\n")
    if reply.parts and not reply.error:
        first, *lines = [part.text for part in reply.parts if isinstance(part, Line)]
        if first.startswith(b"CONFIG "):
            return lines
    return None


def _read(lines: Sequence[bytes], describes: bool, hash_name: str, hash_tag: str) -> ClusterMap:
    try:
        version, text = int(lines[0]), lines[1].decode()
        if describes:
            found = _described(version, json.loads(text))
        else:
            listed = text.split(maxsplit=_MAX_NODES)
            _check_number(listed)
            nodes = tuple(_listed(node, hash_name) for node in listed)
            found = ClusterMap(version, nodes, hash_name, hash_tag)
        found.router()
    except (ConfigError, ValueError, LookupError, TypeError, AttributeError) as error:
        shown = b" ".join(lines)[:80].decode("utf-8", "backslashreplace")
        raise DiscoveryError(f"invalid reply {shown!r}: {error}") from None
    return found


def _described(version: int, topology: Mapping[str, Any]) -> ClusterMap:
    # A newer server may send something that a client must observe to avoid corrupting data.
    unknown = topology.keys() - _PARTS_OF_A_TOPOLOGY
    if unknown:
        raise ConfigError(f"this client does not support {', '.join(sorted(unknown))}")
    _check_number(topology["nodes"])
    nodes = tuple(
        MappedNode(str(node["name"]), parse_address(node["address"]), int(node["weight"]))
        for node in topology["nodes"]
    )
    return ClusterMap(version, nodes, topology["hash"], topology["hash_tag"])


def _check_number(nodes: Sequence[Any]) -> None:
    """Refuse more nodes than a cluster may have, before computing their points on the ring."""
    if len(nodes) > _MAX_NODES:
        raise ConfigError(f"more than {_MAX_NODES:,} nodes")


def _listed(text: str, hash_name: str) -> MappedNode:
    host, _, port = text.split("|")
    address = parse_address(f"[{host}]:{port}", default_port=None)
    return MappedNode(node_name(host, address.port, hash_name), address)
