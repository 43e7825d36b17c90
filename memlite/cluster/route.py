"""``memlite cluster route``: where keys live, and why."""

import json

from memlite.cluster.topology import Topology
from memlite.core.errors import ConfigError
from memlite.routing import Placement

__all__ = ["as_json", "as_text", "check_key"]

_MAX_KEY_LENGTH = 250
_HASHED_WITH = {
    "ketama": "first 32 bits of the MD5",
    "ketama-fnv1a": "low 32 bits of the 64-bit FNV-1a",
    "jump": "first 64 bits of the MD5",
}
_REASONS = {
    "point": "the first point on the ring at or after the hash, or else the first of all",
    "score": "the highest of all nodes, MurmurHash3 of the node's name and the key",
    "bucket": "jump hash, counted from 0; a node has as many buckets as its weight",
}


def check_key(key: bytes) -> bytes:
    """Return the key.

    Raises:
        ConfigError: no client could send it as text.
    """
    if not 0 < len(key) <= _MAX_KEY_LENGTH or any(byte <= 32 or byte == 127 for byte in key):
        raise ConfigError(
            f"cluster route: a key must have 1 to {_MAX_KEY_LENGTH} bytes, without white space or "
            f"control characters: {_shown(key)!r}"
        )
    return key


def as_text(topology: Topology, key: bytes, placement: Placement) -> str:
    """Return some lines for people."""
    node = topology.nodes[placement.node]
    weight = f", weight {node.weight}" if node.weight != 1 else ""
    rows = [("node", f"{node.name} at {node.address}{weight}")]
    if placement.hashed != key:
        rows.append(("hashed", f"{_shown(placement.hashed)} (hash tag {topology.hash_tag})"))
    if placement.hash is not None:
        rows.append(("hash", f"{placement.hash} ({_HASHED_WITH[topology.hash]})"))
    rows.append((placement.reason, f"{placement.value} ({_REASONS[placement.reason]})"))
    if topology.replicas > 1:
        others = topology.router().replicas(key, topology.replicas)[1:]
        rows += [
            ("replica", f"{topology.nodes[one].name} at {topology.nodes[one].address}")
            for one in others
        ]
    if _is_hot(topology, key):
        rows.append(("copies", "on all other nodes, as it is a hot key"))
    lines = [_shown(key), *(f"  {name:<7} {text}" for name, text in rows)]
    return "".join(f"{line}\n" for line in lines)


def as_json(topology: Topology, key: bytes, placement: Placement) -> str:
    """Return a line with a JSON object."""
    node = topology.nodes[placement.node]
    row: dict[str, object] = {
        "key": _shown(key),
        "node": node.name,
        "address": str(node.address),
        "weight": node.weight,
        "algorithm": topology.hash,
        "hashed": _shown(placement.hashed),
        "hash": placement.hash,
        placement.reason: placement.value,
    }
    if topology.replicas > 1:
        others = topology.router().replicas(key, topology.replicas)[1:]
        row["replicas"] = [topology.nodes[other].name for other in others]
    if _is_hot(topology, key):
        row["hot"] = True
    return json.dumps(row, ensure_ascii=False) + "\n"


def _is_hot(topology: Topology, key: bytes) -> bool:
    return any(one.key == key and not one.demoted for one in topology.hot_keys)


def _shown(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
