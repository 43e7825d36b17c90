"""The topology: the nodes of a cluster, and how keys are spread over them."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from memlite.client.address import Address, parse_address
from memlite.cluster.hot_keys import HotKey, parse_hot_keys
from memlite.core.errors import ConfigError
from memlite.core.files import PATIENCE, read_whole
from memlite.routing import HASHES, Member, Router, make_router, node_name

__all__ = [
    "DEFAULT_HASH",
    "MULTI_GETS",
    "ON_RETURN",
    "READ",
    "WRITE",
    "Gutter",
    "Move",
    "Node",
    "Phase",
    "Topology",
    "check_replicas",
    "parse_nodes",
    "read_topology",
]

DEFAULT_HASH: Final = "ketama"
ON_RETURN: Final = ("flush", "keep")
WRITE: Final = ("all", "majority", "primary")
READ: Final = ("any", "primary")
MULTI_GETS: Final = ("sharded", "whole")
_GUTTER_TTL: Final = 60
_MAX_GUTTER_TTL: Final = 3600
_MAX_NODES: Final = 1000
_MAX_WEIGHT: Final = 1000
_MAX_FILE_SIZE: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    Attributes:
        name: the name that is hashed.
        address: where it listens.
        weight: its share of the keys, relative to those of the other nodes.
    """

    name: str
    address: Address
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Gutter:
    """Nodes that serve the keys of nodes that are down.

    Attributes:
        nodes: the nodes.
        ttl: the longest time to live of items there, in seconds.
    """

    nodes: tuple[Node, ...]
    ttl: int = _GUTTER_TTL


class Phase(Enum):
    """The phase of a change of the nodes, in which keys move between them.

    They come in this order; `BACK` may follow `MOVE` in place of `SETTLE`. Each must be known to
    all before the next one begins. Without replicas there is no `GATHER` and no `SPREAD`.
    """

    GATHER = "gather"
    """Keys are at their former nodes. Copies are no longer read; the future ones are made."""
    PREPARE = "prepare"
    """Keys are at their former nodes. All changes of keys that will move are conditional."""
    MOVE = "move"
    """Moving keys are frozen, and then stored at their new node."""
    SETTLE = "settle"
    """All keys are at their new nodes."""
    BACK = "back"
    """Keys are at their former nodes; items that moved are given up, as a new node has failed."""
    SPREAD = "spread"
    """Keys are where they belong, and the missing copies are made. None is read yet."""


@dataclass(frozen=True, slots=True)
class Move:
    """A change of the nodes that is in progress.

    Attributes:
        phase: the present phase.
        nodes: the nodes after the change.
        nonce: 32 hexadecimal digits, at random; see `memlite.cluster.moving.marks`.
        lost: nodes that were destinations when the move began, and have failed since. Keys that
            only they were to receive go to other nodes, or stay where they are.
    """

    phase: Phase
    nodes: tuple[Node, ...]
    nonce: str
    lost: tuple[Node, ...] = ()

    @property
    def begun(self) -> tuple[Node, ...]:
        """The intended nodes when the move began, sorted by name."""
        return tuple(sorted((*self.nodes, *self.lost), key=lambda node: node.name))


@dataclass(frozen=True, slots=True)
class Topology:
    """The nodes of a cluster, and how keys are spread over them.

    Attributes:
        nodes: the nodes, in the given order.
        hash: one of `memlite.routing.HASHES`.
        hash_tag: the characters around the part of a key that is hashed; empty for none.
        on_return: how a proxy treats a node that may have missed changes before using it again; one
            of `ON_RETURN`.
        gutter: the nodes that serve keys of nodes that are down; None for none.
        replicas: the number of nodes that store each item, the key's own node included.
        write: with replicas, which nodes the reply to a change waits for; one of `WRITE`.
        read: which of these nodes answer reads; one of `READ`.
        move: a change in progress, from `nodes` to the nodes in it; None for none.
        hot_keys: keys whose items have copies on all nodes.
        multi_gets: whether a get of several keys is split by node, or sent as a whole to one node,
            which must have them all; one of `MULTI_GETS`.
    """

    nodes: tuple[Node, ...]
    hash: str = DEFAULT_HASH
    hash_tag: str = ""
    on_return: str = "flush"
    gutter: Gutter | None = None
    replicas: int = 1
    write: str = "all"
    read: str = "any"
    move: Move | None = None
    hot_keys: tuple[HotKey, ...] = ()
    multi_gets: str = "sharded"

    def router(self) -> Router:
        """Return a router whose results are indexes in `nodes`.

        Raises:
            ConfigError: the topology is impossible.
        """
        return self._router(self.nodes)

    def next_router(self) -> Router:
        """Return the router for after the move, whose results are indexes in the move's nodes.

        Raises:
            ConfigError: the topology is impossible.
        """
        return self._router(self.nodes if self.move is None else self.move.nodes)

    def begun_router(self) -> Router:
        """Return the router for after the move as originally begun; its results index `begun`.

        Raises:
            ConfigError: the topology is impossible.
        """
        return self._router(self.nodes if self.move is None else self.move.begun)

    def _router(self, nodes: Sequence[Node]) -> Router:
        members = [Member(node.name, node.weight) for node in nodes]
        return make_router(self.hash, members, self.hash_tag)


def default_name(address: Address, hash_name: str) -> str:
    """Return the name that is hashed for a node without a name of its own."""
    return address.path or node_name(address.host, address.port, hash_name)


def parse_nodes(
    text: str,
    hash_name: str = DEFAULT_HASH,
    hash_tag: str = "",
    *,
    replicas: int = 1,
    write: str = "all",
    read: str = "any",
    hot_keys: Sequence[bytes] = (),
    multi_gets: str = "sharded",
) -> Topology:
    """Parse a comma-separated list of node addresses into a topology.

    Raises:
        ConfigError: an address is invalid or repeated, or `make_router` rejects an argument.
    """
    addresses = [parse_address(part.strip()) for part in text.split(",")]
    nodes = tuple(Node(default_name(address, hash_name), address) for address in addresses)
    topology = Topology(nodes, hash_name, hash_tag, replicas=replicas, write=write, read=read)
    return _checked(replace(topology, hot_keys=_hot_keys(hot_keys), multi_gets=multi_gets))


def read_topology(path: Path, patience: float = PATIENCE) -> Topology:
    """Read a topology file.

    Args:
        path: the file.
        patience: seconds to wait for the end of input that is not a regular file; see `read_whole`.

    Raises:
        ConfigError: it cannot be read, or its content is invalid; the text is one line, with the
            file's name.
    """
    try:
        return _topology(tomllib.loads(read_whole(path, _MAX_FILE_SIZE, patience).content.decode()))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _topology(document: Mapping[str, Any]) -> Topology:
    _refuse_unknown(
        document,
        (
            "hash", "hash_tag", "replicas", "write", "read", "multi_gets", "hot_keys", "on_return",
            "gutter", "nodes",
        ),
    )  # fmt: skip
    hash_name = _text(document, "hash", DEFAULT_HASH)
    if hash_name not in HASHES:
        raise ConfigError(f"hash: must be one of {', '.join(HASHES)}, not {hash_name!r}")
    tables = document.get("nodes", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError("nodes: must be tables, each headed [[nodes]]")
    nodes = tuple(_node(table, index, hash_name) for index, table in enumerate(tables, 1))
    on_return = _choice(document, "on_return", ON_RETURN)
    gutter = _gutter(document["gutter"], hash_name) if "gutter" in document else None
    if gutter is not None and on_return == "keep":
        raise ConfigError(
            'on_return: must be "flush" with a gutter, as nodes miss the changes made there'
        )
    hash_tag = _text(document, "hash_tag", "")
    replicas = _number(document, "replicas", 1)
    write, read = _choice(document, "write", WRITE), _choice(document, "read", READ)
    keys = document.get("hot_keys", [])
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ConfigError('hot_keys: must be a list of keys, such as ["front-page"]')
    hot_keys = _hot_keys([key.encode() for key in keys])
    topology = Topology(nodes, hash_name, hash_tag, on_return, gutter, replicas, write, read)
    multi_gets = _choice(document, "multi_gets", MULTI_GETS)
    return _checked(replace(topology, hot_keys=hot_keys, multi_gets=multi_gets))


def _hot_keys(keys: Sequence[bytes]) -> tuple[HotKey, ...]:
    try:
        return parse_hot_keys(keys)
    except ConfigError as error:
        raise ConfigError(f"hot_keys: {error}") from None


def _gutter(table: object, hash_name: str) -> Gutter:
    if not isinstance(table, dict):
        raise ConfigError("gutter: must be a table, headed [gutter]")
    try:
        _refuse_unknown(table, ("nodes", "ttl"))
        addresses = table.get("nodes")
        if not isinstance(addresses, list) or not all(isinstance(one, str) for one in addresses):
            raise ConfigError('nodes: must be a list of addresses, such as ["host:port"]')
        ttl = _number(table, "ttl", _GUTTER_TTL)
        if not 1 <= ttl <= _MAX_GUTTER_TTL:
            raise ConfigError(f"ttl: must be from 1 to {_MAX_GUTTER_TTL} seconds, not {ttl}")
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
        if not 1 <= weight <= _MAX_WEIGHT:
            raise ConfigError(f"weight: must be from 1 to {_MAX_WEIGHT}, not {weight}")
    except ConfigError as error:
        raise ConfigError(f"nodes: number {index}: {error}") from None
    return Node(name, address, weight)


def _refuse_unknown(table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{key}: unknown key; known keys: {', '.join(known)}")


def _text(table: Mapping[str, Any], key: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise ConfigError(f"{key}: must be a string, not {value!r}")
    return value


def _choice(table: Mapping[str, Any], key: str, choices: Sequence[str]) -> str:
    """Return the text of a key, or the first choice if the key is absent."""
    value = _text(table, key, choices[0])
    if value not in choices:
        raise ConfigError(f"{key}: must be one of {', '.join(choices)}, not {value!r}")
    return value


def _number(table: Mapping[str, Any], key: str, default: int) -> int:
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{key}: must be a whole number, not {value!r}")
    return value


def check_replicas(topology: Topology) -> None:
    """Check that the settings are compatible with replicas and hot keys.

    Raises:
        ConfigError: a setting is not.
    """
    replicas, nodes = topology.replicas, len(topology.nodes)
    if replicas < 1 or (nodes and replicas > nodes):
        raise ConfigError(
            f"replicas: must be from 1 to the number of nodes, {nodes}, not {replicas}"
        )
    _check_multi_gets(topology)
    if topology.hot_keys and topology.read == "primary":
        raise ConfigError('read: must be "any" with hot_keys, which are read from all nodes')
    if replicas == 1 and not topology.hot_keys:
        return
    what = "replicas" if replicas > 1 else "hot_keys"
    if topology.move is not None and replicas > 1:
        raise ConfigError("replicas: must be 1 while keys move between nodes")
    if topology.gutter is not None:
        must = "must be 1" if replicas > 1 else "must be empty"
        raise ConfigError(f"{what}: {must} with a gutter; replicas serve reads in its place")
    if topology.on_return == "keep":
        raise ConfigError(
            f'on_return: must be "flush" with {what}, or a node would serve outdated items'
        )


def _check_multi_gets(topology: Topology) -> None:
    if topology.multi_gets == "sharded":
        return
    nodes = len(topology.nodes)
    if topology.replicas != nodes or nodes < 2:
        raise ConfigError(
            'multi_gets: must be "sharded" unless each node has all keys, which requires '
            f"replicas = {max(nodes, 2)}, not {topology.replicas}"
        )
    if topology.read == "primary":
        raise ConfigError('multi_gets: must be "sharded" with read = "primary"')
    if topology.hot_keys:
        raise ConfigError(
            'hot_keys: must be empty with multi_gets = "whole", as each node has all keys'
        )


def _checked(topology: Topology) -> Topology:
    if len(topology.nodes) > _MAX_NODES:
        raise ConfigError(f"nodes: {len(topology.nodes)} nodes exceed the limit of {_MAX_NODES}")
    check_replicas(topology)
    seen: set[Address] = set()
    for node in (*topology.nodes, *(topology.gutter.nodes if topology.gutter else ())):
        if node.address in seen:
            raise ConfigError(f"nodes: duplicate address {node.address}")
        seen.add(node.address)
    topology.router()
    return topology
