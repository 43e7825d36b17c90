"""The topology: the nodes of a cluster, and how keys are spread over them."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memlite.client.address import Address, parse_address
from memlite.core.errors import ConfigError
from memlite.routing import HASHES, Member, Router, make_router, node_name

__all__ = [
    "DEFAULT_HASH",
    "ON_RETURN",
    "Gutter",
    "Node",
    "Topology",
    "parse_nodes",
    "read_topology",
]

DEFAULT_HASH: Final = "ketama"
ON_RETURN: Final = ("flush", "keep")
_GUTTER_TTL: Final = 60
_LONGEST_GUTTER_TTL: Final = 3600
_MOST_NODES: Final = 1000
_MOST_WEIGHT: Final = 1000


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    Attributes:
        name: what is hashed.
        address: where it listens.
        weight: its share of the keys, relative to the others'.
    """

    name: str
    address: Address
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Gutter:
    """Nodes that serve the keys of others that are down.

    Attributes:
        nodes: these nodes.
        ttl: seconds that items live there at most.
    """

    nodes: tuple[Node, ...]
    ttl: int = _GUTTER_TTL


@dataclass(frozen=True, slots=True)
class Topology:
    """The nodes of a cluster, and how keys are spread over them.

    Attributes:
        nodes: the nodes, in the order in which they were given.
        hash: one of `memlite.routing.HASHES`.
        hash_tag: the characters around the part of a key that is hashed; empty for none.
        on_return: what a proxy does with a node that may have missed changes, before it is used
            again; one of `ON_RETURN`.
        gutter: what serves keys of nodes that are down; None for nothing.
    """

    nodes: tuple[Node, ...]
    hash: str = DEFAULT_HASH
    hash_tag: str = ""
    on_return: str = "flush"
    gutter: Gutter | None = None

    def router(self) -> Router:
        """Return a router, whose indexes are those of `nodes`.

        Raises:
            ConfigError: the topology is not possible.
        """
        members = [Member(node.name, node.weight) for node in self.nodes]
        return make_router(self.hash, members, self.hash_tag)


def default_name(address: Address, hash_name: str) -> str:
    """Return the name that is hashed for a node that has none of its own."""
    return address.path or node_name(address.host, address.port, hash_name)


def parse_nodes(text: str, hash_name: str = DEFAULT_HASH, hash_tag: str = "") -> Topology:
    """Return the topology of nodes that are given by their addresses, separated by commas.

    Raises:
        ConfigError: an address is wrong or there twice, or an argument is not one of those that
            `make_router` takes.
    """
    addresses = [parse_address(part.strip()) for part in text.split(",")]
    nodes = tuple(Node(default_name(address, hash_name), address) for address in addresses)
    return _checked(Topology(nodes, hash_name, hash_tag))


def read_topology(path: Path) -> Topology:
    """Read a topology file.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong; the text is one line, with the
            file's name.
    """
    try:
        return _topology(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _topology(document: Mapping[str, Any]) -> Topology:
    _refuse_unknown(document, ("hash", "hash_tag", "replicas", "on_return", "gutter", "nodes"))
    hash_name = _text(document, "hash", DEFAULT_HASH)
    if hash_name not in HASHES:
        raise ConfigError(f"hash: must be one of {', '.join(HASHES)}, not {hash_name!r}")
    if _number(document, "replicas", 1) != 1:
        raise ConfigError("replicas: more than 1 is not possible yet")
    tables = document.get("nodes", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError("nodes: must be tables, each headed [[nodes]]")
    nodes = tuple(_node(table, index, hash_name) for index, table in enumerate(tables, 1))
    on_return = _text(document, "on_return", "flush")
    if on_return not in ON_RETURN:
        raise ConfigError(f"on_return: must be one of {', '.join(ON_RETURN)}, not {on_return!r}")
    gutter = _gutter(document["gutter"], hash_name) if "gutter" in document else None
    if gutter is not None and on_return == "keep":
        raise ConfigError(
            'on_return: must be "flush" with a gutter, as nodes do not get what is changed there'
        )
    hash_tag = _text(document, "hash_tag", "")
    return _checked(Topology(nodes, hash_name, hash_tag, on_return, gutter))


def _gutter(table: object, hash_name: str) -> Gutter:
    if not isinstance(table, dict):
        raise ConfigError("gutter: must be a table, headed [gutter]")
    try:
        _refuse_unknown(table, ("nodes", "ttl"))
        addresses = table.get("nodes")
        if not isinstance(addresses, list) or not all(isinstance(one, str) for one in addresses):
            raise ConfigError('nodes: must be a list of addresses, as ["host:port"]')
        ttl = _number(table, "ttl", _GUTTER_TTL)
        if not 1 <= ttl <= _LONGEST_GUTTER_TTL:
            raise ConfigError(f"ttl: must be seconds from 1 to {_LONGEST_GUTTER_TTL}, not {ttl}")
        return Gutter(parse_nodes(",".join(addresses), hash_name).nodes, ttl)
    except ConfigError as error:
        raise ConfigError(f"gutter: {error}") from None


def _node(table: Mapping[str, Any], index: int, hash_name: str) -> Node:
    try:
        _refuse_unknown(table, ("name", "address", "weight"))
        if "address" not in table:
            raise ConfigError("address: is missing")
        text = _text(table, "address", "")
        try:
            address = parse_address(text)
        except ConfigError as error:
            raise ConfigError(f"address: {error}") from None
        name = _text(table, "name", default_name(address, hash_name))
        if not name or not name.isprintable() or " " in name:
            raise ConfigError(f"name: must be text without spaces, not {name!r}")
        weight = _number(table, "weight", 1)
        if not 1 <= weight <= _MOST_WEIGHT:
            raise ConfigError(f"weight: must be from 1 to {_MOST_WEIGHT}, not {weight}")
    except ConfigError as error:
        raise ConfigError(f"nodes: number {index}: {error}") from None
    return Node(name, address, weight)


def _refuse_unknown(table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{key}: is not known; there are {', '.join(known)}")


def _text(table: Mapping[str, Any], key: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise ConfigError(f"{key}: must be text, not {value!r}")
    return value


def _number(table: Mapping[str, Any], key: str, default: int) -> int:
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{key}: must be a whole number, not {value!r}")
    return value


def _checked(topology: Topology) -> Topology:
    if len(topology.nodes) > _MOST_NODES:
        raise ConfigError(f"nodes: {len(topology.nodes)} are more than {_MOST_NODES}")
    seen: set[Address] = set()
    for node in (*topology.nodes, *(topology.gutter.nodes if topology.gutter else ())):
        if node.address in seen:
            raise ConfigError(f"nodes: {node.address} is there twice")
        seen.add(node.address)
    topology.router()
    return topology
