"""Notes about nodes that miss changes, kept on the other nodes so that every proxy sees them.

See docs/decisions/0054-who-misses-changes-is-noted-on-the-others.md.
"""

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from memlite.client import FENCE
from memlite.protocol.replies import END, STORED
from memlite.proxy.answers import Answer
from memlite.proxy.expected import fits, shown
from memlite.proxy.link import NodeLostError
from memlite.proxy.notes import Note, adding, notes_of, removing, setting, word_of

__all__ = ["FRESH", "Absence", "Absences", "may_skip"]

FRESH: Final = 1.0
"""For how many seconds after a note was sent changes may begin under it."""
_SLACK: Final = 1.25  # for the time from one look at the notes to the next
_NODES_A_READ: Final = 50
_OUT: Final = "it has missed changes by another proxy"


class _Receiver(Protocol):
    @property
    def reads(self) -> bool: ...

    def answer(self, reply: bytes) -> None: ...

    def fail(self, error: bytes) -> None: ...


class _Node(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def down(self) -> bool: ...

    @property
    def state(self) -> str: ...

    def send(self, request: bytes, receiver: _Receiver) -> None: ...

    def take_out(self, reason: str) -> None: ...

    def try_again(self) -> None: ...


class _Scheduler(Protocol):
    def call_soon(self, function: Callable[[str], None], reason: str) -> object: ...


class _Holder:
    """A proxy's view of the notes on a node.

    Attributes:
        notes: the notes last seen, by their keys.
        asked: when they were requested; 0 if not since the node was last down.
    """

    def __init__(self) -> None:
        self.notes: dict[bytes, Note] = {}
        self.asked = 0.0


class Absence:
    """A proxy's view of the changes that a node misses.

    There are two notes about a node. Proxies that cannot reach the node write the first, and no
    proxy uses the node while that note changes. Proxies that can reach it, but wait for the others,
    write the second. With a single note, they would wait for each other.

    Args:
        owner: knows the notes about all nodes.
        node: the node.

    Attributes:
        node: as above.
        away: the key of the first note.
        missed: the key of the second note.
        skips: changes in progress that the node misses.
    """

    def __init__(self, owner: "Absences", node: _Node) -> None:
        self.node = node
        word = word_of(node.name)
        self.away, self.missed = b"memlite:absent:%b" % word, b"memlite:missed:%b" % word
        self.skips = 0
        self._owner = owner
        self._done: dict[bytes, int] = {}  # highest number of a note that is over, by writer
        self._sending = False
        self._confirmed = -FRESH  # when the last note that another node has was sent
        self._used = -math.inf  # when a change was last made under a note
        self._waiting: list[Callable[[bytes], None]] = []
        self._reached = -math.inf  # when the node was last reached, but had to wait
        self._settling: list[Note] = []
        self._others = -math.inf  # when another proxy's first note was last seen to have changed

    # While the node is away

    def confirm(self, then: Callable[[bytes], None], *, reads: bool = False) -> None:
        """Make sure that there is a note before something is done in place of the node.

        Args:
            then: called with empty bytes, or with the ``SERVER_ERROR`` line if there is no note.
            reads: whether the request changes nothing; it then needs no note, but does not overtake
                earlier requests.
        """
        if reads and self._waiting:
            self._waiting.append(lambda _error: then(b""))
        elif reads or self.is_fresh():
            if not reads and 2 * self._age() >= FRESH:
                self._write()
            if not reads:
                self._used = self._owner.now()
            then(b"")
        else:
            self._used = self._owner.now()
            self._waiting.append(then)
            self._write()

    def keep(self) -> None:
        """Rewrite the note if another proxy's flush removed it before that proxy had seen it.

        Nothing else removes the note that early.
        """
        recent = self._owner.now() - self._used < self._owner.settled_after
        keys = (self.away, self.missed)
        if recent and self.node.down and not any(self._owner.notes(self.node, keys)):
            self._write()

    def is_fresh(self) -> bool:
        """Return whether a change may begin now."""
        return self._age() < FRESH

    def _age(self) -> float:
        return self._owner.now() - self._confirmed

    @property
    def error(self) -> bytes:
        """The ``SERVER_ERROR`` line for the lack of a note."""
        name = self.node.name.encode("ascii", "backslashreplace")
        return b"SERVER_ERROR node %b: down, and no other node has noted that in time\r\n" % name

    def _write(self) -> None:
        """Write a note to all other nodes, unless a write is in progress."""
        if self._sending:
            return
        owner, sent = self._owner, self._owner.now()
        others = [node for node in owner.nodes if node is not self.node and not node.down]
        if not others:
            self._noted(-FRESH)
            return
        self._sending = True
        key, token = self.missed if self.waits else self.away, owner.new_token()
        missing, confirmed = len(others), False

        def written(node: _Node, reply: bytes, failed: bool) -> None:
            nonlocal missing, confirmed
            missing -= 1
            stored = not failed and reply == STORED
            if stored:
                owner.wrote(node, key, token)
            if confirmed or not (stored or not missing):
                return
            confirmed, self._sending = True, False
            self._noted(sent if stored else -FRESH)

        look = b"gets %b %b\r\n" % (self.away, self.missed)
        for node in others:
            owner.ask(node, look)  # for the notes to be overwritten
            node.send(setting(key, token), Answer(partial(written, node), reads=True))

    def _noted(self, sent: float) -> None:
        self._confirmed = max(self._confirmed, sent)
        waiting, self._waiting = self._waiting, []
        error = b"" if self.is_fresh() else self.error
        for then in waiting:
            then(error)

    # When the node comes back

    async def prepare(self, ask: Callable[[bytes], Awaitable[bytes]]) -> bool:
        """Find out whether changes were made without the node.

        Args:
            ask: sends the node a request and returns the reply.

        Returns:
            Whether the node must be emptied. Call `returned` once it has been, or if that is not
            needed.

        Raises:
            NodeLostError: the node must not be used yet; or raised by `ask`.
        """
        owner = self._owner
        await owner.read(self.node, ask)
        await owner.know_others(self.node)
        self._refuse_if_skipped()
        foreign = list(self._foreign(self.away, self.missed))
        self._settling = [note for note in foreign if owner.settled(note, self.node)]
        return bool(foreign)

    def _refuse_if_skipped(self) -> None:
        owner = self._owner
        notes = owner.notes(self.node, (self.away,))
        # A note of this proxy may have replaced another proxy's.
        if any(not self.is_over(note) for note in notes) and not owner.is_past(
            self._others, self.node
        ):
            self._reached = owner.now()
            raise NodeLostError(_OUT)

    def returned(self) -> None:
        """Note that the node holds nothing from before `prepare`, and is in use.

        Raises:
            NodeLostError: the node must not be used yet.
        """
        self._refuse_if_skipped()
        self._reached = -math.inf
        for note in self._settling:
            self._done[note.writer] = max(note.number, self._done.get(note.writer, 0))
        self._settling = []
        self._owner.look()

    def empty(self, request: bytes, receiver: _Receiver) -> None:
        """Send the node ``flush_all``; see `Absences.empty`."""
        self._owner.empty(self.node, request, receiver)

    def notes_there(self) -> bytes:
        """Return the requests that restore the notes on the node; see `Absences.again`."""
        return self._owner.again(self.node)

    @property
    def waits(self) -> bool:
        """Whether the node is reachable, as far as is known, but must not be used yet."""
        # The node is tried every second.
        return self._owner.now() - self._reached < 2 + self._owner.deadline

    def must_leave(self) -> bool:
        """Return whether the node must not be used until it has been prepared again."""
        owner = self._owner
        return any(self._foreign(self.away)) or any(
            owner.settled(note, self.node) for note in self._foreign(self.missed)
        )

    def seen(self, key: bytes, note: Note) -> None:
        """Handle a new note about the node."""
        if key == self.away and not (self._owner.is_mine(note) or self.is_over(note)):
            self._others = self._owner.now()

    def is_over(self, note: Note) -> bool:
        """Return whether a note about the node no longer has any effect."""
        if self._owner.is_mine(note):
            return self.node.state == "up" and not (self.skips or self._waiting)
        return note.number <= self._done.get(note.writer, -1)

    def _foreign(self, *keys: bytes) -> Iterator[Note]:
        """Yield the notes of other proxies about the node that are not over."""
        owner = self._owner
        for note in owner.notes(self.node, keys):
            if not owner.is_mine(note) and not self.is_over(note):
                yield note


class Absences:
    """The notes about all nodes, as known to a proxy.

    Args:
        scheduler: defers calls that must not be made at once.
        deadline: seconds within which a node must answer.
        clock: returns seconds that never decrease.

    Attributes:
        deadline: as above.
        now: the clock.
        nodes: the nodes, including those of a gutter.
    """

    def __init__(
        self,
        scheduler: _Scheduler,
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self.deadline = deadline
        self.now = clock
        self.nodes: Sequence[_Node] = ()
        self.settled_after = FRESH + deadline + _SLACK
        self._writer = os.urandom(8).hex().encode()
        self._number = 0
        self._about: dict[_Node, Absence] = {}
        self._by_key: dict[bytes, Absence] = {}
        self._on: dict[_Node, _Holder] = {}
        self._first_seen: dict[bytes, float] = {}  # by tokens that are on some node
        self._news: list[asyncio.Future[None]] = []

    def new_token(self) -> bytes:
        """Return a unique value for a note."""
        self._number += 1
        return b"%b-%d" % (self._writer, self._number)

    def is_mine(self, note: Note) -> bool:
        """Return whether this proxy has written a note."""
        return note.writer == self._writer

    def watch(self, nodes: Sequence[_Node]) -> None:
        """Set the nodes."""
        self.nodes = nodes
        self._about = {node: self._about.get(node) or Absence(self, node) for node in nodes}
        self._on = {node: self._on.get(node) or _Holder() for node in nodes}
        about = self._about.values()
        self._by_key = {key: one for one in about for key in (one.away, one.missed)}
        for known in self._on.values():
            known.notes = {key: note for key, note in known.notes.items() if key in self._by_key}
        self._wake()

    def of(self, node: _Node) -> Absence:
        """Return the `Absence` of a node."""
        return self._about[node]

    def tick(self) -> None:
        """Do periodic work; to be called every second."""
        self.look()
        for absence in self._about.values():
            absence.keep()
            if absence.waits:
                absence.node.try_again()

    def went_down(self, node: _Node) -> None:
        """Note that a node is down."""
        holder = self._on.get(node)
        if holder is not None:
            holder.asked = 0.0
        self._wake()

    # Reading notes

    def look(self) -> None:
        """Ask all nodes for their notes."""
        self._look_at([node for node in self.nodes if node.state == "up"])

    def _look_at(self, nodes: Sequence[_Node]) -> None:
        now, requests = self.now(), self._requests() if nodes else []
        for node in nodes:
            for last, request in requests:
                self.ask(node, request, now if last else 0.0)

    def ask(self, node: _Node, request: bytes, asked: float = 0.0) -> None:
        """Ask a node for notes.

        Args:
            node: the node.
            request: a ``gets``.
            asked: the time, if this is the last request for all notes on a node; else 0.
        """
        node.send(request, Answer(partial(self._looked, node, request, asked), reads=True))

    def _requests(self) -> list[tuple[bool, bytes]]:
        """Return the requests for all notes, each preceded by whether it is the last."""
        about = list(self._about.values())
        parts = [about[at : at + _NODES_A_READ] for at in range(0, len(about), _NODES_A_READ)]
        return [(part is parts[-1], b"gets " + b" ".join(_keys(part)) + b"\r\n") for part in parts]

    def _looked(
        self, node: _Node, request: bytes, asked: float, reply: bytes, failed: bool
    ) -> None:
        if not failed and node in self._on:
            self._take(node, request, asked, reply)
        self._wake()

    async def read(self, node: _Node, ask: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Read the notes on a node that is not used yet.

        Args:
            node: the node.
            ask: sends it a request and returns the reply.
        """
        now = self.now()
        for last, request in self._requests():
            reply = await ask(request)
            if not (reply.endswith(END) and fits(request, reply)):
                raise NodeLostError(f"unexpected reply to gets: {shown(reply)}")
            if node in self._on:
                self._take(node, request, now if last else 0.0, reply)
        self._wake()

    async def know_others(self, node: _Node) -> None:
        """Wait until the notes on all other nodes that are not down are known.

        The wait takes at most half a deadline, as requests may be waiting for it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.deadline / 2):
                await self._know_others(node)

    async def _know_others(self, node: _Node) -> None:
        since = self.now()
        looked: set[_Node] = set()
        while True:
            unknown = [one for one in self.nodes if one is not node and self._unknown(one, since)]
            # A node that was connecting may be up by now.
            late = [one for one in unknown if one.state == "up" and one not in looked]
            looked.update(late)
            self._look_at(late)
            if not unknown:
                return
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._news.append(news)
            await news

    def _unknown(self, node: _Node, since: float) -> bool:
        asked = self._on[node].asked
        return not node.down and (not asked or (asked < since and node.state == "up"))

    def _wake(self) -> None:
        news, self._news = self._news, []
        for one in news:
            if not one.done():
                one.set_result(None)

    def _take(self, node: _Node, request: bytes, asked: float, reply: bytes) -> None:
        """Process a node's reply to a request for some notes."""
        holder = self._on[node]
        holder.asked = asked or holder.asked
        if not reply.endswith(END):
            return  # an error says nothing about notes
        seen = dict(notes_of(reply))
        if seen or holder.notes:
            now = self.now()
            for key in request.split()[1:]:
                holder.notes.pop(key, None)
            holder.notes.update({key: seen[key] for key in seen if key in self._by_key})
            for key, note in holder.notes.items():
                if note.token not in self._first_seen:
                    self._by_key[key].seen(key, note)
            known = [note.token for one in self._on.values() for note in one.notes.values()]
            self._first_seen = {token: self._first_seen.get(token, now) for token in known}
        for key, note in holder.notes.items():
            self._act(node, key, note)

    def _act(self, holder: _Node, key: bytes, note: Note) -> None:
        """Act on a note."""
        absence = self._by_key[key]
        if absence.is_over(note):
            if not holder.down:
                holder.send(removing(key, note), Answer(_ignore, reads=True))
        elif absence.node.state == "up" and absence.must_leave():
            self._scheduler.call_soon(absence.node.take_out, _OUT)

    def wrote(self, node: _Node, key: bytes, token: bytes) -> None:
        """Record a note of this proxy that a node has stored; its cas unique is not known."""
        if node in self._on and key in self._by_key:
            self._on[node].notes[key] = Note(token, 0)

    def notes(self, node: _Node, keys: Iterable[bytes]) -> Iterator[Note]:
        """Yield the notes with some keys that were seen on nodes other than `node`."""
        for holder, known in self._on.items():
            if holder is not node:
                for key in keys:
                    if key in known.notes:
                        yield known.notes[key]

    def settled(self, note: Note, node: _Node) -> bool:
        """Return whether no change under a note, or under an earlier one, is still in progress.

        Args:
            note: the note.
            node: the node that the note is about.
        """
        return self.is_past(self._first_seen.get(note.token, math.inf), node)

    def is_past(self, since: float, node: _Node) -> bool:
        """Return whether no change under a note that was seen at `since` is still in progress."""
        asked = [self._on[one].asked for one in self.nodes if one is not node and not one.down]
        return min(asked, default=self.now()) >= since + self.settled_after

    # Flushes, which would remove notes

    def again(self, node: _Node) -> bytes:
        """Return the requests that restore the notes on a node; they have no replies.

        They may include notes that are known to be on another node only.
        """
        found: dict[bytes, Note] = {}
        for holder, known in self._on.items():
            for key, note in known.notes.items():
                absence = self._by_key[key]
                usable = absence.node is not node and not absence.is_over(note)
                if usable and (holder is node or key not in found):
                    found[key] = note
        return b"".join(adding(key, note.token) for key, note in found.items())

    def kept(self, nodes: Iterable[_Node]) -> Callable[[], None]:
        """Return a function that restores the notes on nodes after something has removed them.

        The notes are collected now, as they cannot be found once they are removed.
        """
        notes = [(node, self.again(node)) for node in nodes]

        def restore() -> None:
            for node, again in notes:
                if again:
                    node.send(FENCE + again, Answer(_ignore, reads=True))

        return restore

    def empty(self, node: _Node, request: bytes, receiver: _Receiver) -> None:
        """Send a node ``flush_all``, and restore the notes on it.

        Args:
            node: the node.
            request: the command.
            receiver: receives the reply.
        """
        known = self.again(node)
        for _, look in self._requests():  # other proxies may have written notes meanwhile
            node.send(look, Answer(partial(self._found, node, look, known), reads=True))
        node.send(request + known, receiver)

    def _found(self, node: _Node, look: bytes, known: bytes, reply: bytes, failed: bool) -> None:
        """Process the notes that were on a node just before it was emptied."""
        self._looked(node, look, 0.0, reply, failed)
        again = self.again(node)
        if again and again != known and not failed:
            node.send(FENCE + again, Answer(_ignore, reads=True))

    def flushed(self, nodes: Iterable[_Node]) -> "list[_Flushed]":
        """Return the targets of a ``flush_all`` for nodes that are to keep their notes."""
        return [_Flushed(self, node) for node in nodes]


class _Flushed:
    """Sends a node ``flush_all``; see `Absences.empty`."""

    def __init__(self, absences: Absences, node: _Node) -> None:
        self._absences = absences
        self._node = node

    def send(self, request: bytes, receiver: _Receiver) -> None:
        self._absences.empty(self._node, request, receiver)


def may_skip(absences: Sequence[Absence], then: Callable[[bytes], None]) -> None:
    """Make sure that there are notes about several nodes; see `Absence.confirm`."""
    missing, failed = len(absences), b""

    def noted(error: bytes) -> None:
        nonlocal missing, failed
        missing -= 1
        failed = failed or error
        if not missing:
            late = next((absence.error for absence in absences if not absence.is_fresh()), b"")
            then(failed or late)

    if not absences:
        then(b"")
    for absence in absences:
        absence.confirm(noted)


def _keys(absences: Iterable[Absence]) -> Iterator[bytes]:
    for absence in absences:
        yield absence.away
        yield absence.missed


def _ignore(_reply: bytes, _failed: bool) -> None:
    pass
