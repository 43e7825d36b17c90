"""What the meta and binary protocols ask of the engine beyond the classic commands."""

from typing import NamedTuple

from memlite.backends import Item, Marks, nameable
from memlite.engine import semantics
from memlite.engine.engine import Engine
from memlite.engine.semantics import Content, Mode, Outcome
from memlite.errors import CommandError, OutOfMemoryError
from memlite.native import mypyc_attr

__all__ = ["Counted", "Found", "MetaEngine"]


class Found(NamedTuple):
    """An item, and how it was before it was asked for.

    Attributes:
        item: as it is now. Its version may be 0 until the backend has given it one.
        created: it was absent, and is there now, empty.
        won: who asked is to store it anew; nobody was told so before.
        sent: somebody was told so before.
        expires: unix time in seconds at which it would have expired; 0 for never.
        fetched: whether it was ever read.
        accessed: unix second at which it was stored or last read.
    """

    item: Item
    created: bool
    won: bool
    sent: bool
    expires: float
    fetched: bool
    accessed: int


class Counted(NamedTuple):
    """How counting ended.

    Attributes:
        outcome: STORED, or why there is no number.
        number: the new one.
        item: that of the number; None where there is none.
        created: it was absent.
        expires: unix time in seconds at which it would have expired; 0 for never.
    """

    outcome: Outcome
    number: int = 0
    item: Item | None = None
    created: bool = False
    expires: float = 0.0


@mypyc_attr(allow_interpreted_subclasses=True)
class MetaEngine(Engine):
    """Commands with conditions and options.

    Wherever an argument is called `unique` it is the cas unique to give the item, None for one of
    the engine's choice; `compare` is the one it must have for anything to happen, None for any.
    `exptime` and `touch` are as on the wire. `binary` marks an item whose key came as base64.

    Attributes:
        ordered: whether a greater cas unique is a newer one.
    """

    ordered = True

    def retrieve(
        self,
        key: bytes,
        *,
        touch: int | None = None,
        vivify: int | None = None,
        recache: int | None = None,
        recache_first: bool = False,
        unique: int | None = None,
        bump: bool = True,
    ) -> Found | None:
        """Return an item, and find out whether who asks is to store it anew.

        That is told to one client: of a stale item, of one that was absent (with `vivify`), of
        one that expires soon (with `recache`).

        Args:
            key: the item's.
            touch: its new exptime; None to leave it.
            vivify: the exptime of the empty item to store if the key is absent; None for not to.
            recache: seconds left to live below which it is to be stored anew.
            recache_first: compare that with the expiry before `touch`, not the one after.
            unique: for an item that is made.
            bump: whether it counts as read.
        """
        now = self.clock.now()
        item = self._look_up(key)
        if self.prefixes is not None:
            self.prefixes.record_get(key, item is not None)
        created = item is None and vivify is not None
        if created:
            expires = semantics.expiry(vivify or 0, now)
            marks = Marks(won=True, binary=not nameable(key), unique=unique)
            try:
                self._put_content(key, None, Content(b"", 0, expires, marks))
            except OutOfMemoryError:
                created = False
            item = self.table.get(key)
        if item is None:
            self.counters.get_misses += 1
            return None
        marks = item.marks or Marks()
        before = 0.0 if created else item.expires
        after = before if touch is None else semantics.expiry(touch, now)
        sent = marks.won and not created
        won = created or (marks.stale and not sent)
        if recache is not None and not created and not sent:
            expires = before if recache_first else after
            # In whole seconds, as memcached has them: what was stored a moment ago for so long as
            # is asked for does not expire before.
            won = won or bool(expires and int(expires) < int(semantics.expiry(recache, now)))
        found = Found(item, created, won, sent, before, item.fetched, item.accessed)
        if not created and (won or touch is not None):
            changed = marks._replace(won=True) if won else item.marks
            item = self.table.alter(key, item, after, changed)
            found = found._replace(item=item)
        if touch is None:
            self.counters.hits += 1
        else:
            self.counters.cmd_touch += 1
            self.counters.touch_hits += 1
        if bump:
            self._bump(key, item)
        return found

    def store(
        self,
        mode: Mode,
        key: bytes,
        flags: int,
        exptime: int,
        value: bytes,
        *,
        compare: int | None = None,
        accept_older: bool = False,
        vivify: bool = False,
        unique: int | None = None,
        binary: bool = False,
    ) -> tuple[Outcome, Item | None]:
        """Store; see `semantics.store`. Returns the outcome, and the item if it was stored.

        Raises:
            OutOfMemoryError: it does not fit and may not evict; for set, an older item is removed.
        """
        self.counters.cmd_set += 1
        if self.prefixes is not None:
            self.prefixes.record_set(key)
        binary = binary or not nameable(key)
        marks = Marks(binary=binary, unique=unique) if binary or unique is not None else None
        new = Content(value, flags, semantics.expiry(exptime, self.clock.now()), marks)
        current = self.peek(key)
        if compare and current is not None and not self.cas_enabled:
            compare = 0
        if compare is not None and current is not None:
            current = self.numbered(current)
        decision = semantics.store(
            current,
            new,
            mode,
            unique=compare,
            accept_older=accept_older,
            ordered=self.ordered,
            vivify=vivify,
        )
        try:
            # A cas unique makes memcached take either for cas, which its log shows.
            is_cas = compare is not None and mode in (Mode.SET, Mode.REPLACE)
            command = "cas" if is_cas else mode.name.lower()
            outcome = self._carry_out(command, key, new, decision)
        except OutOfMemoryError:
            if mode is Mode.SET:
                self.table.delete(key)
            raise
        if compare is not None and mode in (Mode.SET, Mode.REPLACE):
            self._count_cas(outcome)
        if outcome is Outcome.STORED:
            return outcome, self.table.get(key)
        if mode is Mode.ADD and current is not None:
            self._renew(key)
        return outcome, None

    def remove(
        self,
        key: bytes,
        *,
        compare: int | None = None,
        empty: bool = False,
        flags: int = 0,
        stale: bool = False,
        touch: int | None = None,
        unique: int | None = None,
        command: str = "md",
    ) -> Outcome:
        """Delete a key, or leave its item there, empty or stale or both.

        Args:
            key: the item's.
            compare: see above.
            empty: take its value away, and give it `flags` and the exptime `touch` (or none).
            flags: the client's flags of an item made empty.
            stale: show it as stale from now on, with the exptime `touch` (default: its own).
            touch: as above.
            unique: as above; one that is made empty keeps its own, unless it is stale.
            command: what the observer is told it was.

        Raises:
            OutOfMemoryError: as above.
        """
        if self.prefixes is not None:
            self.prefixes.record_delete(key)
        item = self._look_up(key)
        counters = self.counters
        if item is None:
            counters.delete_misses += 1
            return Outcome.NOT_FOUND
        if compare is not None:
            item = self.numbered(item)
            if self.unique(item) != compare:
                counters.delete_misses += 1
                return Outcome.EXISTS
        now = self.clock.now()
        marks = item.marks or Marks()
        if empty:
            own = unique
            if unique is None and not stale and self.cas_enabled:
                item = self.numbered(item)
                own = item.unique
            marks = Marks(stale=stale, binary=not nameable(key), unique=own)
            expires = semantics.expiry(touch or 0, now)
            self._put_content(key, item, Content(b"", flags, expires, marks))
        elif stale:
            expires = item.expires if touch is None else semantics.expiry(touch, now)
            marks = marks._replace(stale=True, won=False, unique=unique)
            item = self.table.alter(key, item, expires, marks, renumber=True)
        else:
            self.table.delete(key)
        if not stale:
            if self.observer is not None:
                self.observer.deleted(command, key, item)
            counters.delete_hits += 1
        return Outcome.DELETED

    def count(
        self,
        key: bytes,
        delta: int,
        *,
        down: bool = False,
        compare: int | None = None,
        initial: int | None = None,
        exptime: int = 0,
        touch: int | None = None,
        unique: int | None = None,
    ) -> Counted:
        """Add `delta`, or subtract it; see `semantics.count`.

        Args:
            key: the item's.
            delta: by how much.
            down: whether to subtract.
            compare: see above.
            initial: the number to store if the key is absent; None for none.
            exptime: that of an item made so.
            touch: the new exptime of one that was there; None to leave it.
            unique: see above.

        Raises:
            CommandError: it does not fit and may not evict.
        """
        current = self.peek(key)
        if current is None and initial is not None:
            self._look_up(key)  # as those do that count below, each once
            return self._begin_count(key, initial, exptime, unique)
        # An empty value is no number, whatever its cas unique.
        mismatch = current is not None and compare is not None and compare != self.unique(current)
        if current is not None and current.size and mismatch:
            self._look_up(key)
            return Counted(Outcome.EXISTS)
        expires = 0.0 if current is None else current.expires
        result = self.decr(key, delta) if down else self.incr(key, delta)
        if isinstance(result, Outcome):
            return Counted(result)
        item = self.table.get(key)
        if item is not None and (touch is not None or unique is not None):
            until = item.expires if touch is None else semantics.expiry(touch, self.clock.now())
            marks = item.marks
            if unique is not None:
                marks = (marks or Marks())._replace(unique=unique)
            item = self.table.alter(key, item, until, marks)
        return Counted(Outcome.STORED, result, item, expires=expires)

    def _begin_count(self, key: bytes, initial: int, exptime: int, unique: int | None) -> Counted:
        binary = not nameable(key)
        marks = Marks(binary=binary, unique=unique) if binary or unique is not None else None
        new = Content(b"%d" % initial, 0, semantics.expiry(exptime, self.clock.now()), marks)
        try:
            self._carry_out("add", key, new, (Outcome.STORED, new))
        except OutOfMemoryError as error:
            raise CommandError(b"SERVER_ERROR Out of memory allocating new item\r\n") from error
        return Counted(Outcome.STORED, initial, self.table.get(key), created=True)
