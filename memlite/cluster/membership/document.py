"""The object about the cluster: its members, its spares, and the move of keys in progress."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, Final

from memlite.client.address import parse_address
from memlite.cluster.hot_keys import HotKey
from memlite.cluster.membership.encoding import DocumentError, check, decode, encode
from memlite.cluster.topology import DEFAULT_HASH, Move, Node, Phase, Topology
from memlite.core.errors import ConfigError

__all__ = ["TOPOLOGY", "Document", "Entry", "Moving"]

TOPOLOGY: Final = "topology"
"""The name of the object about the cluster."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A member or a spare.

    Attributes:
        name: the node's name, which is hashed.
        address: where it listens, ``HOST:PORT``.
        incarnation: rises each time a node of this name joins. It begins with the unix time, so
            that it also rises if the store has lost the last one. 0 without a lease.
        joined: unix time at which the node joined, in whole seconds, by its own clock.
        weight: its share of the keys.
        leased: whether the node registers itself and renews a lease; otherwise it was added by
            hand, and is not monitored.
    """

    name: str
    address: str
    incarnation: int
    joined: int = 0
    weight: int = 1
    leased: bool = True


@dataclass(frozen=True, slots=True)
class Moving:
    """A move of keys that is in progress.

    Attributes:
        phase: the present phase.
        target: the names of the members after the move.
        nonce: identifies the marks at nodes, 32 hexadecimal digits.
        forgets: the names of nodes without a lease that will not even be spares after the move.
        epochs: the epoch in which each phase so far began, by the phase's name.
        lost: the names of nodes that were in the target when the move began, and have failed since.
        former: the former number of nodes of each item, if only that changes; else 0.
    """

    phase: Phase
    target: tuple[str, ...]
    nonce: str
    forgets: tuple[str, ...] = ()
    epochs: tuple[tuple[str, int], ...] = ()
    lost: tuple[str, ...] = ()
    former: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """The members of a cluster, and how keys are spread over them.

    While keys move, the ring does not change: a node that leaves keeps its place until the move is
    over, or another node of the same name takes it. If a node is removed in `Phase.PREPARE`, in
    which nothing has moved yet, the move is cancelled instead.

    Attributes:
        epoch: rises with each change. It begins with the unix time, so that it also rises when a
            store has lost it.
        members: sorted by name. While keys move, the members from before the move.
        hash: see `memlite.cluster.topology.Topology`.
        hash_tag: likewise.
        spares: nodes that have no keys, sorted by name.
        move: the move of keys in progress; None for none.
        hot_keys: the keys that are or recently were promoted; none while keys move.
        replicas: the number of nodes that store each item. With more than one, nodes become members
            only by moves, and a node that has lost its items does not stay a member.
    """

    epoch: int = 0
    members: tuple[Entry, ...] = ()
    hash: str = DEFAULT_HASH
    hash_tag: str = ""
    spares: tuple[Entry, ...] = ()
    move: Moving | None = None
    hot_keys: tuple[HotKey, ...] = ()
    replicas: int = 1

    @property
    def nodes(self) -> tuple[Entry, ...]:
        """Members and spares, sorted by name."""
        return _sorted((*self.members, *self.spares))

    def entry(self, name: str) -> Entry | None:
        """Return the member or spare of this name, or None."""
        return next((one for one in chain(self.members, self.spares) if one.name == name), None)

    def is_member(self, name: str) -> bool:
        """Return whether a node has keys now."""
        return any(one.name == name for one in self.members)

    def has_place(self, name: str) -> bool:
        """Return whether a node has or gets a place in the ring, which it keeps while keys move."""
        move = self.move
        return move is not None and (self.is_member(name) or name in (*move.target, *move.lost))

    @property
    def target(self) -> tuple[Entry, ...]:
        """The members after the move; without a move, the present ones."""
        if self.move is None:
            return self.members
        return tuple(one for one in self.nodes if one.name in self.move.target)

    # Nodes that come and go

    def with_node(self, entry: Entry, now: float, *, spare: bool = False) -> "Document":
        """Return the document with a node, in place of an earlier incarnation.

        It is unchanged if there is a later incarnation, because the node was delayed while joining
        and another has taken its name; also if the node has to wait.

        Args:
            entry: the node.
            now: unix time.
            spare: whether a new node becomes a spare; other nodes keep their status.
        """
        if self.waits(entry.name, spare=spare):
            return self
        present = self.entry(entry.name)
        if present is None:
            places = {"spares": (*self.spares, entry)}
            if not spare and not self._moves_only:
                places = {"members": (*self.members, entry)}
            return self._changed(now, **places)
        if present.incarnation > entry.incarnation or present.leased != entry.leased:
            return self
        if self._moves_only and self.is_member(entry.name) and len(self.members) > 1:
            # It has lost its items, of which others have copies.
            members = _without(self.members, entry.name)
            return self._changed(now, members=members, spares=(*self.spares, entry))
        return self._changed(
            now,
            members=_replaced(self.members, entry),
            spares=_replaced(self.spares, entry),
        )

    @property
    def _moves_only(self) -> bool:
        """Whether nodes become members only by moves, because others have copies of their keys."""
        return self.replicas > 1 and bool(self.members)

    def waits(self, name: str, *, spare: bool) -> bool:
        """Return whether a node has to wait until the move is over.

        Otherwise it would become a member. Or keys were moving to it when the move was turned back
        or continued without it: proxies that do not know that yet would find keys there again.
        """
        if self.move is None:
            return False
        if name in self.move.lost:
            return True
        if self.replicas > 1:
            return self.has_place(name)
        if self.entry(name) is None:
            return not spare
        return self.move.phase is Phase.BACK and not self.is_member(name) and self.has_place(name)

    def with_spares(self, entries: Iterable[Entry], now: float) -> "Document":
        """Return the document with nodes without a lease as spares, replacing namesakes."""
        added = {entry.name: entry for entry in entries}
        others = [one for one in self.spares if one.name not in added]
        return self._changed(now, spares=[*others, *added.values()])

    def without(self, name: str, incarnation: int, now: float) -> "Document":
        """Return the document without a node; unchanged if its incarnation is another one.

        It is also unchanged if the node keeps its place.
        """
        entry = self.entry(name)
        if entry is None or entry.incarnation != incarnation:
            return self
        move = self.move
        if self.has_place(name):
            if move is None or move.phase is not Phase.PREPARE or self.replicas > 1:
                return self
            move = None
        return self._changed(
            now,
            members=_without(self.members, name),
            spares=_without(self.spares, name),
            move=move,
        )

    # Moves

    def moving_to(
        self, target: Sequence[str], nonce: str, now: float, *, forgets: Sequence[str] = ()
    ) -> "Document":
        """Return the document with a move to other members, which it already lists."""
        phase = Phase.PREPARE if self.replicas == 1 else Phase.GATHER
        move = Moving(phase, tuple(sorted(target)), nonce, tuple(sorted(forgets)))
        return self._in_phase(move, phase, now)

    def with_replicas(self, replicas: int, nonce: str, now: float) -> "Document":
        """Return the document with more replicas, whose copies are still to be made."""
        target = tuple(one.name for one in self.members)
        changed = replace(self, replicas=replicas)
        if not target:
            return changed._changed(now)
        move = Moving(Phase.SPREAD, target, nonce, former=self.replicas)
        return changed._in_phase(move, Phase.SPREAD, now)

    def in_phase(self, phase: Phase, now: float) -> "Document":
        """Return the document with the move in another phase."""
        assert self.move is not None  # noqa: S101 - the caller has checked
        return self._in_phase(self.move, phase, now)

    def going_on_without(self, names: Sequence[str], now: float) -> "Document":
        """Return the document with a move that leaves out failed nodes."""
        assert self.move is not None  # noqa: S101 - the caller has checked
        move = self.move
        target = tuple(name for name in move.target if name not in names)
        lost = tuple(sorted({*move.lost, *names}))
        return self._changed(now, move=replace(move, target=target, lost=lost))

    def moved(self, now: float) -> "Document":
        """Return the document after the move."""
        assert self.move is not None  # noqa: S101 - the caller has checked
        target, forgets = self.move.target, (*self.move.forgets, *self.move.lost)
        others = [one for one in self.nodes if one.name not in target]
        changed = self._changed(
            now,
            members=self.target,
            spares=[one for one in others if one.leased or one.name not in forgets],
            move=None,
        )
        return changed._spreading(self.move, now) if self._moves_only else changed

    def not_moved(self, now: float) -> "Document":
        """Return the document with the members from before the move."""
        assert self.move is not None  # noqa: S101 - the caller has checked
        changed = self._changed(now, move=None)
        if self.replicas > 1 and self.move.phase is not Phase.SPREAD:
            return changed._spreading(self.move, now)
        return changed

    def _spreading(self, move: Moving, now: float) -> "Document":
        """Return the document in the phase in which the remaining copies are made."""
        target = tuple(one.name for one in self.members)
        return self._in_phase(replace(move, target=target, forgets=(), lost=()), Phase.SPREAD, now)

    def _in_phase(self, move: Moving, phase: Phase, now: float) -> "Document":
        changed = self._changed(now)
        epochs = (*move.epochs, (phase.value, changed.epoch))
        return replace(changed, move=replace(move, phase=phase, epochs=epochs))

    def _changed(self, now: float, **fields: Any) -> "Document":
        for name in ("members", "spares"):
            if name in fields:
                fields[name] = _sorted(fields[name])
        return replace(self, epoch=self.next_epoch(now), **fields)

    def with_hot_keys(self, hot_keys: tuple[HotKey, ...], now: float) -> "Document":
        """Return the document with other hot keys; unchanged if they are the same."""
        return self if hot_keys == self.hot_keys else self._changed(now, hot_keys=hot_keys)

    def next_epoch(self, now: float) -> int:
        """Return the epoch for a change made now."""
        return max(self.epoch + 1, int(now))

    # As others see it

    def topology(self) -> Topology | None:
        """Return the topology; None without members."""
        if not self.members:
            return None
        move = None
        if self.move is not None:
            lost = [one for one in self.nodes if one.name in self.move.lost]
            move = Move(self.move.phase, _nodes(self.target), self.move.nonce, _nodes(lost))
        # A member that was away has removed all its items.
        return Topology(
            _nodes(self.members),
            self.hash,
            self.hash_tag,
            on_return="keep",
            replicas=self.replicas,
            hot_keys=self.hot_keys,
            move=move,
        )

    def encode(self) -> bytes:
        """Return the object's content.

        Fields unknown to older versions are left out where they are empty.
        """
        fields: dict[str, Any] = {
            "epoch": self.epoch,
            "members": [_fields(one) for one in self.members],
            "hash": self.hash,
            "hash_tag": self.hash_tag,
        }
        if self.replicas > 1:
            fields["replicas"] = self.replicas
        if self.spares:
            fields["spares"] = [_fields(one) for one in self.spares]
        if self.hot_keys:
            fields["hot_keys"] = [one.encode() for one in self.hot_keys]
        if self.move is not None:
            epochs = dict(self.move.epochs)
            fields["move"] = {**asdict(self.move), "phase": self.move.phase.value, "epochs": epochs}
            for name in ("lost", "former"):
                if not fields["move"][name]:
                    del fields["move"][name]
        return encode(fields)

    @classmethod
    def decode(cls, data: bytes | None) -> "Document":
        """Parse an object; return an empty document if there is no object.

        Raises:
            DocumentError: the content is invalid.
        """
        if data is None:
            return cls()
        try:
            document = cls(**_parsed(decode(data)))
            _check(document)
            topology = document.topology()
            if topology is not None:
                topology.router()
        except (ValueError, TypeError, KeyError, AttributeError, ConfigError) as error:
            raise DocumentError(f"{TOPOLOGY}: not a valid cluster object: {error}") from None
        return document


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.name))


def _replaced(entries: Sequence[Entry], entry: Entry) -> list[Entry]:
    return [entry if one.name == entry.name else one for one in entries]


def _without(entries: Sequence[Entry], name: str) -> list[Entry]:
    return [one for one in entries if one.name != name]


def _nodes(entries: Iterable[Entry]) -> tuple[Node, ...]:
    return tuple(Node(one.name, parse_address(one.address), one.weight) for one in entries)


def _fields(entry: Entry) -> dict[str, Any]:
    fields = asdict(entry)
    if entry.leased:
        del fields["leased"]
    return fields


def _parsed(fields: Mapping[str, Any]) -> dict[str, Any]:
    parsed = dict(fields)
    parsed["members"] = tuple(Entry(**one) for one in fields["members"])
    parsed["spares"] = tuple(Entry(**one) for one in fields.get("spares", ()))
    parsed["hot_keys"] = tuple(map(HotKey.decode, fields.get("hot_keys", ())))
    if fields.get("move") is not None:
        move = dict(fields["move"])
        move["phase"] = Phase(move["phase"])
        move["target"], move["forgets"] = tuple(move["target"]), tuple(move["forgets"])
        move["epochs"] = tuple(move["epochs"].items())
        move["lost"] = tuple(move.get("lost", ()))
        parsed["move"] = Moving(**move)
    return parsed


def _check(document: Document) -> None:
    check(isinstance(document.epoch, int), "epoch")
    check(isinstance(document.replicas, int) and document.replicas >= 1, "replicas")
    for one in document.nodes:
        check(isinstance(one.name, str) and isinstance(one.incarnation, int), "members")
    if document.move is not None:
        known = {one.name for one in document.nodes}
        check(bool(document.move.target) and known.issuperset(document.move.target), "move")
        check(known.difference(document.move.target).issuperset(document.move.lost), "lost")
        check(len(bytes.fromhex(document.move.nonce)) == 16, "nonce")
        former = document.move.former
        check(isinstance(former, int) and 0 <= former <= document.replicas, "former")
