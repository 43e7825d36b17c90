"""``memlite cluster plan``: the items that a change of the nodes would move. Performs no I/O."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote_to_bytes

from memlite.client.address import parse_address
from memlite.cluster.topology import Node, Topology, default_name
from memlite.core.errors import ConfigError
from memlite.routing import Router

__all__ = [
    "Plan",
    "Survey",
    "Tally",
    "as_json",
    "as_text",
    "changed",
    "items_text",
    "plan_of",
    "size_text",
    "surveys",
]

_HEADINGS: Final = ("NODE", "ITEMS", "BYTES", "LEAVE", "BYTES", "ARRIVE", "BYTES")
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_row: Final = re.compile(rb"key=(\S+) (?:\S+ )*?size=(\d+)").match


@dataclass(slots=True)
class Tally:
    """Some items.

    Attributes:
        items: number of items.
        bytes: the memory they take, with keys and overhead, as counted by their node.
    """

    items: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count an item of `size` bytes."""
        self.items += 1
        self.bytes += size

    def merge(self, other: "Tally") -> None:
        """Count other items too."""
        self.items += other.items
        self.bytes += other.bytes


class Survey:
    """Counts the items of one node, line by line of its ``lru_crawler metadump``.

    With replicas, copies count as items. A node sends copies of keys of which it is the first node.

    Attributes:
        held: all items.
        elsewhere: items whose key belongs to other nodes.
        moves: items by destination node, as an index in `Plan.nodes`.
        deciding: number of keys that get another first node.

    Args:
        node: the node's index in the present topology.
        before: the present router.
        after: the planned one.
        new_index: maps the planned router's indexes to those in `Plan.nodes`.
        replicas: the number of nodes that store each item.
    """

    def __init__(
        self,
        node: int,
        before: Router,
        after: Router,
        new_index: Sequence[int],
        replicas: int = 1,
    ) -> None:
        self._replicas = replicas
        self.held = Tally()
        self.elsewhere = Tally()
        self.moves: dict[int, Tally] = {}
        self.deciding = 0
        self._node = node
        self._before = before
        self._after = after
        self._new_index = new_index

    def add(self, line: bytes) -> bool:
        """Count the item of a line; return False if the line describes none."""
        found = _row(line)
        if found is None:
            return False
        key, size = unquote_to_bytes(found[1]), int(found[2])
        self.held.add(size)
        before = self._before.replicas(key, self._replicas)
        if self._node not in before:
            self.elsewhere.add(size)
        elif self._node == before[0]:
            after = [self._new_index[one] for one in self._after.replicas(key, self._replicas)]
            self.deciding += after[0] != self._node
            for place, target in enumerate(after):
                # A new deciding node receives the item even if it has a copy.
                if target not in before or (not place and target != self._node):
                    self.moves.setdefault(target, Tally()).add(size)
        return True


@dataclass(frozen=True, slots=True)
class Plan:
    """The items that a change of the nodes would move.

    Attributes:
        nodes: the present nodes, then the added ones.
        held: the items that each node holds now.
        leave: the items that would leave each node.
        arrive: the items that would move to each node.
        elsewhere: items on nodes to which their key does not belong at present. Proxies do not see
            them.
        deciding: number of keys that get another first node. These items are moved; others are
            copied.
    """

    nodes: tuple[Node, ...]
    held: tuple[Tally, ...]
    leave: tuple[Tally, ...]
    arrive: tuple[Tally, ...]
    elsewhere: Tally
    deciding: int = 0

    @property
    def total(self) -> Tally:
        """All items."""
        return _sum(self.held)

    @property
    def moved(self) -> Tally:
        """All items that would move."""
        return _sum(self.leave)


def changed(
    topology: Topology, add: Sequence[str], remove: Sequence[str], *, by_name: bool = False
) -> Topology:
    """Return the topology with some nodes added and removed.

    Args:
        topology: the present one.
        add: ``HOST:PORT`` or ``NAME=HOST:PORT`` each.
        remove: names or addresses.
        by_name: whether the nodes are members of a cluster: they are sorted by name, and a node
            without a name is named after its whole address.

    Raises:
        ConfigError: a node to add already exists, a node to remove does not, or none would be left.
    """
    nodes = list(topology.nodes)
    for text in remove:
        found = [node for node in nodes if text in (node.name, str(node.address))]
        if not found:
            names = ", ".join(node.name for node in nodes) or "none"
            raise ConfigError(f"--remove: unknown node {text!r}; known nodes: {names}")
        nodes.remove(found[0])
    for text in add:
        node = _node(text, topology.hash, by_name)
        if any(one.name == node.name or one.address == node.address for one in nodes):
            raise ConfigError(f"--add: node {node.name} at {node.address} already exists")
        nodes.append(node)
    if not nodes:
        raise ConfigError("--remove: no node would be left")
    if by_name:
        nodes.sort(key=lambda node: node.name)
    planned = replace(topology, nodes=tuple(nodes))
    planned.router()
    return planned


def _node(text: str, hash_name: str, by_name: bool) -> Node:
    name, equals, where = text.rpartition("=")
    try:
        address = parse_address(where)
    except ConfigError as error:
        raise ConfigError(f"--add: {error}") from None
    if equals and (not name or not name.isprintable() or " " in name):
        raise ConfigError(f"--add: a name must be text without spaces, not {name!r}")
    return Node(name or (str(address) if by_name else default_name(address, hash_name)), address)


def _all_nodes(before: Topology, after: Topology) -> tuple[Node, ...]:
    """Return the present nodes, then the added ones."""
    names = {node.name for node in before.nodes}
    return (*before.nodes, *(node for node in after.nodes if node.name not in names))


def surveys(before: Topology, after: Topology) -> list[Survey]:
    """Return a survey for each of the present nodes."""
    places = {node.name: index for index, node in enumerate(_all_nodes(before, after))}
    new_index = [places[node.name] for node in after.nodes]
    routers = before.router(), after.router()
    return [
        Survey(index, *routers, new_index, before.replicas) for index in range(len(before.nodes))
    ]


def plan_of(before: Topology, after: Topology, counted: Sequence[Survey]) -> Plan:
    """Return the plan, from a finished survey of each of the present nodes."""
    nodes = _all_nodes(before, after)
    arrive = tuple(Tally() for _ in nodes)
    for survey in counted:
        for target, tally in survey.moves.items():
            arrive[target].merge(tally)
    added = [Tally() for _ in nodes[len(counted) :]]
    return Plan(
        nodes,
        (*(survey.held for survey in counted), *added),
        (*(_sum(survey.moves.values()) for survey in counted), *(Tally() for _ in added)),
        arrive,
        _sum(survey.elsewhere for survey in counted),
        sum(survey.deciding for survey in counted),
    )


def as_text(plan: Plan) -> str:
    """Return a table for people."""
    rows = [_HEADINGS, *(_cells(row) for row in _rows(plan))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))).rstrip()
        for row in rows
    ]
    total, moved = plan.total, plan.moved
    share = f" ({moved.items / total.items:.1%})" if total.items else ""
    lines.append(
        f"{moved.items:,} of {items_text(total.items)}{share} would move: "
        f"{size_text(moved.bytes)} of {size_text(total.bytes)}"
    )
    if plan.elsewhere.items:
        lines.append(
            f"not counted, as clients of a proxy do not see them: "
            f"{items_text(plan.elsewhere.items)} on nodes that do not own their key"
        )
    return "".join(f"{line}\n" for line in lines)


def as_json(plan: Plan) -> str:
    """Return a line with a JSON object."""
    nodes = [
        {
            "name": node.name,
            "address": str(node.address),
            "held": _object(held),
            "leave": _object(leave),
            "arrive": _object(arrive),
        }
        for node, held, leave, arrive in _rows(plan)
    ]
    document = {
        "held": _object(plan.total),
        "moved": _object(plan.moved),
        "elsewhere": _object(plan.elsewhere),
        "nodes": nodes,
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def _rows(plan: Plan) -> Iterable[tuple[Node, Tally, Tally, Tally]]:
    return zip(plan.nodes, plan.held, plan.leave, plan.arrive, strict=True)


def _cells(row: tuple[Node, Tally, Tally, Tally]) -> tuple[str, ...]:
    node, *tallies = row
    return (
        node.name,
        *(text for one in tallies for text in (f"{one.items:,}", size_text(one.bytes))),
    )


def _object(tally: Tally) -> dict[str, int]:
    return {"items": tally.items, "bytes": tally.bytes}


def _sum(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.merge(tally)
    return total


def items_text(count: int) -> str:
    """Return a number of items in words."""
    return "1 item" if count == 1 else f"{count:,} items"


def size_text(count: float) -> str:
    """Return a number of bytes in a readable unit."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"
