"""Auto discovery: a topology in the formats that clients understand."""

import ipaddress
import json
from collections.abc import Callable

from memlite.cluster.topology import Node, Topology
from memlite.protocol.discovery import listing

__all__ = ["description_of", "ip_of", "listing_of"]


def listing_of(version: int, topology: Topology, resolved: Callable[[Node], str]) -> bytes:
    """Return the nodes in the format of plain clients; see `memlite.protocol.discovery.listing`.

    Args:
        version: a number that rises with each change.
        topology: the nodes; none listens on a UNIX socket.
        resolved: returns the IP address, if known, of a node that is given by host name.
    """
    nodes = []
    for node in topology.nodes:
        host, port = node.address.host, node.address.port
        nodes.append((host, ip_of(host) or resolved(node), port))
    return listing(version, nodes)


def description_of(version: int, topology: Topology) -> bytes:
    """Return the description with which `memlite.client.ClusterClient` places keys."""
    nodes = [
        {"name": node.name, "address": str(node.address), "weight": node.weight}
        for node in topology.nodes
    ]
    text = json.dumps({"hash": topology.hash, "hash_tag": topology.hash_tag, "nodes": nodes})
    return f"{version}\n{text}\n".encode()


def ip_of(host: str) -> str:
    """Return the host if it is an IP address, else an empty string."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""
