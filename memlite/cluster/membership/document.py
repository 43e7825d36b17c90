"""What the store holds: one object about the cluster, and one about each node.

They are JSON, so that people can read them.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, Final

from memlite.client.address import parse_address
from memlite.cluster.topology import DEFAULT_HASH, Node, Topology
from memlite.core.errors import ConfigError, MemliteError

__all__ = [
    "TOPOLOGY",
    "Document",
    "DocumentError",
    "Entry",
    "Registration",
    "Standing",
    "registration_name",
]

TOPOLOGY: Final = "topology"
"""The name of the object about the cluster."""

_FORMAT: Final = 1


class DocumentError(MemliteError):
    """An object in the store is not what it should be; the text says which and why."""


def registration_name(node: str) -> str:
    """Return the name of the object about a node."""
    return f"node/{node}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A member.

    Attributes:
        name: the node's name, which is hashed.
        address: where it listens, ``HOST:PORT``.
        incarnation: rises each time a node of this name joins. It begins with the unix time, so
            that it also rises if the store has lost the last one.
        joined: unix time at which it joined, in whole seconds, by its own clock.
        weight: its share of the keys.
    """

    name: str
    address: str
    incarnation: int
    joined: int = 0
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Document:
    """The members of a cluster, and how keys are spread over them.

    Attributes:
        epoch: rises with each change. It begins with the unix time, so that it also rises when a
            store has lost it.
        members: sorted by name.
        hash: see `memlite.cluster.topology.Topology`.
        hash_tag: see there.
    """

    epoch: int = 0
    members: tuple[Entry, ...] = ()
    hash: str = DEFAULT_HASH
    hash_tag: str = ""

    def entry(self, name: str) -> Entry | None:
        """Return the member of this name, or None."""
        return next((one for one in self.members if one.name == name), None)

    def with_member(self, entry: Entry, now: float) -> "Document":
        """Return the document with a member, in place of an earlier incarnation.

        If there is a later one, the document is unchanged: the node was held up while it joined,
        and another has taken its name.
        """
        present = self.entry(entry.name)
        if present is not None and present.incarnation > entry.incarnation:
            return self
        others = [one for one in self.members if one.name != entry.name]
        return self._changed([*others, entry], now)

    def without(self, name: str, incarnation: int, now: float) -> "Document":
        """Return the document without a member; unchanged if it is there in another incarnation."""
        others = [one for one in self.members if (one.name, one.incarnation) != (name, incarnation)]
        return self if len(others) == len(self.members) else self._changed(others, now)

    def _changed(self, members: list[Entry], now: float) -> "Document":
        members.sort(key=lambda entry: entry.name)
        return replace(self, epoch=max(self.epoch + 1, int(now)), members=tuple(members))

    def topology(self) -> Topology | None:
        """Return the topology; None without members."""
        nodes = (Node(one.name, parse_address(one.address), one.weight) for one in self.members)
        found = tuple(nodes)
        if not found:
            return None
        # A member that was away has emptied itself.
        return Topology(found, self.hash, self.hash_tag, on_return="keep")

    def encode(self) -> bytes:
        """Return the object's content."""
        return _encode(asdict(self))

    @classmethod
    def decode(cls, data: bytes | None) -> "Document":
        """Return what an object holds; an empty document if there is no object.

        Raises:
            DocumentError: it is something else.
        """
        if data is None:
            return cls()
        try:
            fields = _decode(data)
            members = tuple(Entry(**entry) for entry in fields.pop("members"))
            document = cls(members=members, **fields)
            _check(isinstance(document.epoch, int), "epoch")
            for one in members:
                _check(isinstance(one.name, str) and isinstance(one.incarnation, int), "members")
            topology = document.topology()
            if topology is not None:
                topology.router()
        except (ValueError, TypeError, KeyError, AttributeError, ConfigError) as error:
            raise DocumentError(f"{TOPOLOGY}: not a cluster's: {error}") from None
        return document


class Standing(Enum):
    """What a node's registration says."""

    MEMBER = "member"
    """It renews its lease."""
    LEFT = "left"
    """It has left."""
    FENCED = "fenced"
    """Its lease ran out, and another member has removed it."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What a node has said of itself, or what was said of it when its lease had run out.

    Attributes:
        incarnation: as in `Entry`.
        sequence: rises with each renewal, so that no two contents are the same.
        address: as in `Entry`.
        standing: as above.
    """

    incarnation: int
    sequence: int
    address: str
    standing: Standing = Standing.MEMBER

    def next(self, standing: Standing = Standing.MEMBER) -> "Registration":
        """Return the one after it."""
        return replace(self, sequence=self.sequence + 1, standing=standing)

    def encode(self) -> bytes:
        """Return the object's content."""
        return _encode({**asdict(self), "standing": self.standing.value})

    @classmethod
    def decode(cls, name: str, data: bytes) -> "Registration":
        """Return what the object of this name holds.

        Raises:
            DocumentError: it is something else.
        """
        try:
            fields = _decode(data)
            standing = Standing(fields.pop("standing"))
            registration = cls(standing=standing, **fields)
            _check(isinstance(registration.sequence, int), "sequence")
            _check(isinstance(registration.incarnation, int), "incarnation")
        except (ValueError, TypeError, KeyError) as error:
            raise DocumentError(f"{name}: not a node's registration: {error}") from None
        return registration


def _encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps({"format": _FORMAT, **fields}, ensure_ascii=False).encode()


def _decode(data: bytes) -> dict[str, Any]:
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    if fields.pop("format", None) != _FORMAT:
        raise ValueError("of another version of memlite")
    return fields


def _check(right: bool, what: str) -> None:
    if not right:
        raise ValueError(f"{what} is wrong")
