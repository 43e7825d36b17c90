"""The changes of ``memlite cluster add``, ``drain`` and ``remove``. Performs no I/O."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from memlite.client.address import parse_address
from memlite.cluster.membership.document import Document, Entry
from memlite.core.errors import ConfigError, StartError

__all__ = ["Change", "change_of"]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the members.

    Attributes:
        target: the names of the members afterwards.
        added: new nodes without a lease.
        forgets: see `memlite.cluster.membership.document.Moving`.
    """

    target: tuple[str, ...]
    added: tuple[Entry, ...] = ()
    forgets: tuple[str, ...] = ()

    def begun(self, document: Document, nonce: str, now: float) -> Document:
        """Return the cluster with the move begun; without members, add the new ones at once.

        Raises:
            StartError: the nodes no longer exist, or there are hot keys.
        """
        if document.hot_keys:
            raise StartError("a hot key was promoted in the meantime; try again")
        if self.added:
            document = document.with_spares(self.added, now)
        missing = set(self.target).difference(one.name for one in document.nodes)
        if missing:
            raise StartError(f"{', '.join(sorted(missing))} left the cluster in the meantime")
        moving = document.moving_to(self.target, nonce, now, forgets=self.forgets)
        return moving if document.members else moving.moved(now)

    def without_a_move(self, document: Document, now: float) -> Document:
        """Return the cluster without the forgotten nodes, if its members need no move."""
        for name in self.forgets:
            entry = document.entry(name)
            if entry is not None and not entry.leased:
                document = document.without(name, entry.incarnation, now)
        return document


def change_of(document: Document, action: str, nodes: Sequence[str]) -> Change:
    """Return the change that a command requests.

    Args:
        document: the present cluster. While keys move, the change may be the one in progress.
        action: add, drain or remove.
        nodes: its arguments.

    Raises:
        ConfigError: an argument is wrong.
    """
    names = [one.name for one in document.members]
    if action == "add":
        entries = [_to_add(document, text) for text in nodes]
        added = [one for one in entries if document.entry(one.name) != one]
        target = {*names, *(one.name for one in entries)}
        return Change(tuple(sorted(target)), tuple(added))
    going = [_present(document, text, action) for text in nodes]
    target = set(names).difference(one.name for one in going)
    if not target:
        raise ConfigError(f"cluster {action}: no node would be left")
    forgets = [one.name for one in going if action == "remove" and not one.leased]
    return Change(tuple(sorted(target)), forgets=tuple(sorted(forgets)))


def _present(document: Document, text: str, action: str) -> Entry:
    for one in document.nodes:
        if text in (one.name, one.address):
            return one
    names = ", ".join(one.name for one in document.nodes) or "none"
    raise ConfigError(f"cluster {action}: unknown node {text!r}; known nodes: {names}")


def _to_add(document: Document, text: str) -> Entry:
    for one in document.nodes:
        if text in (one.name, one.address):
            return one
    name, equals, where = text.rpartition("=")
    if not equals and ":" not in text:
        spares = ", ".join(one.name for one in document.spares)
        others = f"the spares are {spares}" if spares else "there are no spares"
        raise ConfigError(
            f"cluster add: unknown spare {text!r}; {others}. To add a server that does not "
            "register itself, use NAME=HOST:PORT"
        )
    try:
        address = str(parse_address(where))
    except ConfigError as error:
        raise ConfigError(f"cluster add: {error}") from None
    if equals and (not name or not name.isprintable() or " " in name):
        raise ConfigError(f"cluster add: a name must be text without spaces, not {name!r}")
    name = name or address
    for one in document.nodes:
        same = one.name == name and one.address == address
        if same and not one.leased:
            return one
        taken = one.name == name and (one.leased or document.is_member(name))
        if taken or (one.address == address and one.name != name):
            raise ConfigError(f"cluster add: node {one.name} at {one.address} already exists")
    return Entry(name, address, 0, int(time.time()), leased=False)
