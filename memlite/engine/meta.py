"""Commands of the meta and binary protocols that go beyond the classic ones."""

from typing import NamedTuple

from memlite.core.build import mypyc_attr
from memlite.core.errors import OutOfMemoryError, Shortage
from memlite.core.meta_flags import MetaFlags
from memlite.engine import semantics
from memlite.engine.engine import Engine
from memlite.engine.semantics import Content, Mode, Outcome
from memlite.memory import Item, nameable

__all__ = ["Counted", "Found", "MetaEngine"]


class Found(NamedTuple):
    """An item, and its state before the command.

    Attributes:
        item: the item as it is now. Its version may be 0 until the backend has assigned one.
        created: whether it was absent, and the command has created it, empty.
        won: whether this client is to recache it; no other client has been told to before.
        sent: whether another client was told to recache it.
        expires: its expiry before, unix time in seconds; 0 for never.
        fetched: whether it was read before.
        accessed: unix second at which it was stored or last read before.
        unique: its cas unique before, if requested; else 0.
    """

    item: Item
    created: bool
    won: bool
    sent: bool
    expires: float
    fetched: bool
    accessed: int
    unique: int


class Counted(NamedTuple):
    """The result of an increment or decrement.

    Attributes:
        outcome: STORED, or why there is no number.
        number: the new number.
        item: the item that holds it; None if there is no number.
        created: whether the item was absent before.
        expires: its expiry before, unix time in seconds; 0 for never.
    """

    outcome: Outcome
    number: int = 0
    item: Item | None = None
    created: bool = False
    expires: float = 0.0


@mypyc_attr(allow_interpreted_subclasses=True)
class MetaEngine(Engine):
    """Commands with conditions and options.

    Arguments have the same meaning in all methods. `unique` is the cas unique to assign to the
    item, None for one of the engine's choice. `compare` is the cas unique that the item must have,
    None for no condition. `exptime` and `touch` are as clients send them. `binary` says that the
    key was sent as base64.

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
        compares: bool = False,
    ) -> Found | None:
        """Return an item, and decide whether this client is to recache it.

        Exactly one client is told to recache an item that is stale, was absent (with `vivify`) or
        expires soon (with `recache`).

        Args:
            key: the key.
            touch: the new exptime; None to keep the present one.
            vivify: the exptime of the empty item to create if the key is absent; None to create
                none.
            recache: remaining seconds to live below which the item is to be recached.
            recache_first: apply `recache` to the expiry before `touch`, not after it.
            unique: the cas unique of a created item.
            bump: whether the item counts as read.
            compares: whether the caller needs the cas unique that the item had before.
        """
        now = self.clock.now()
        item = self.look_up(key)
        if self.prefixes is not None:
            self.prefixes.record_get(key, item is not None)
        created = item is None and vivify is not None
        if created:
            expires = semantics.expiry(vivify or 0, now)
            meta_flags = MetaFlags(won=True, binary=not nameable(key), unique=unique)
            try:
                self._put_content(key, None, Content(b"", 0, expires, meta_flags))
            except OutOfMemoryError:
                created = False
            item = self.table.get(key)
        if item is None:
            self.counters.get_misses += 1
            return None
        meta_flags = item.meta_flags or MetaFlags()
        before = 0.0 if created else item.expires
        after = before if touch is None else semantics.expiry(touch, now)
        sent = meta_flags.won and not created
        won = created or (meta_flags.stale and not sent)
        if recache is not None and not created and not sent:
            expires = before if recache_first else after
            # In whole seconds, as in memcached: an item that was stored a moment ago with the same
            # number of seconds does not count as expiring earlier.
            won = won or bool(expires and int(expires) < int(semantics.expiry(recache, now)))
        shown = 0
        if compares and self.cas_enabled:
            item = self.with_unique(item)
            shown = item.unique
        found = Found(item, created, won, sent, before, item.fetched, item.accessed, shown)
        if not created and (won or touch is not None):
            changed = meta_flags._replace(won=True) if won else item.meta_flags
            item = self.table.update_metadata(key, item, after, changed)
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
            OutOfMemoryError: it does not fit and nothing may be evicted. For set, an older item is
                removed.
        """
        binary = binary or not nameable(key)
        if mode is Mode.SET and compare is None and unique is None and not binary:
            self.set(key, flags, exptime, value)
            return Outcome.STORED, self.table.get(key)
        self.count_store(key)
        meta = MetaFlags(binary=binary, unique=unique) if binary or unique is not None else None
        new = Content(value, flags, semantics.expiry(exptime, self.clock.now()), meta)
        current = self.peek(key)
        if compare and current is not None and not self.cas_enabled:
            compare = 0
        if compare is not None and current is not None:
            current = self.with_unique(current, compare)
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
            # With a cas unique, memcached treats and logs either as cas.
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
            if unique is not None:
                self._note_unique(unique)
            return outcome, self.table.get(key)
        if mode is Mode.ADD and current is not None:
            self._mark_used(key)
        return outcome, None

    def _note_unique(self, unique: int) -> None:
        """Record a cas unique assigned by a client."""

    def set_for_unique(self, key: bytes, flags: int, exptime: int, value: bytes) -> Item | None:
        """Store like `set`, and return the item, whose cas unique is shown to the client.

        Raises:
            OutOfMemoryError: see `set`.
        """
        self.set(key, flags, exptime, value)
        return self.table.get(key)

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
        """Delete a key, or keep its item and make it empty, stale or both.

        Args:
            key: the key.
            compare: see the class.
            empty: remove the value, and set `flags` and the exptime `touch` (or none).
            flags: the client's flags of an item that is made empty.
            stale: mark the item as stale, with the exptime `touch` (default: unchanged).
            touch: see the class.
            unique: see the class. An item that is made empty keeps its own, unless it is stale.
            command: the name of the command for the observer.

        Raises:
            OutOfMemoryError: see `store`.
        """
        if compare is None and not (empty or stale or self.observed):
            return Outcome.DELETED if self.delete(key) else Outcome.NOT_FOUND
        if self.prefixes is not None:
            self.prefixes.record_delete(key)
        item = self.look_up(key)
        counters = self.counters
        if item is None:
            counters.delete_misses += 1
            return Outcome.NOT_FOUND
        if compare is not None:
            item = self.with_unique(item, compare)
            if self.unique(item) != compare:
                counters.delete_misses += 1
                return Outcome.EXISTS
        now = self.clock.now()
        meta_flags = item.meta_flags or MetaFlags()
        if empty:
            own = unique
            if unique is None and not stale and self.cas_enabled:
                item = self.with_unique(item)
                own = item.unique
            meta_flags = MetaFlags(stale=stale, binary=not nameable(key), unique=own)
            expires = semantics.expiry(touch or 0, now)
            self._put_content(key, item, Content(b"", flags, expires, meta_flags))
        elif stale:
            expires = item.expires if touch is None else semantics.expiry(touch, now)
            meta_flags = meta_flags._replace(stale=True, won=False, unique=unique)
            item = self.table.update_metadata(key, item, expires, meta_flags, drop_version=True)
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
            key: the key.
            delta: the number to add or subtract.
            down: whether to subtract.
            compare: see the class.
            initial: the number to store if the key is absent; None to store none.
            exptime: the exptime of an item that is created.
            touch: the new exptime of an item that existed; None to keep the present one.
            unique: see the class.

        Raises:
            OutOfMemoryError: it does not fit and nothing may be evicted.
        """
        if compare is None and initial is None and touch is None and unique is None:
            result = self.decr(key, delta) if down else self.incr(key, delta)
            if isinstance(result, Outcome):
                return Counted(result)
            item = self.table.get(key)
            return Counted(Outcome.STORED, result, item, False, item.expires if item else 0.0)
        current = self.peek(key)
        if current is None and initial is not None:
            self.look_up(key)  # once, as `incr` and `decr` do below
            return self._begin_count(key, initial, exptime, unique)
        # An empty value is not a number, regardless of its cas unique.
        mismatch = (
            current is not None and compare is not None and compare != self.unique(current, compare)
        )
        if current is not None and current.size and mismatch:
            self.look_up(key)
            return Counted(Outcome.EXISTS)
        expires = 0.0 if current is None else current.expires
        result = self.decr(key, delta) if down else self.incr(key, delta)
        if isinstance(result, Outcome):
            return Counted(result)
        item = self.table.get(key)
        if item is not None and (touch is not None or unique is not None):
            until = item.expires if touch is None else semantics.expiry(touch, self.clock.now())
            meta_flags = item.meta_flags
            if unique is not None:
                meta_flags = (meta_flags or MetaFlags())._replace(unique=unique)
            item = self.table.update_metadata(key, item, until, meta_flags)
        return Counted(Outcome.STORED, result, item, expires=expires)

    def _begin_count(self, key: bytes, initial: int, exptime: int, unique: int | None) -> Counted:
        binary = not nameable(key)
        meta = MetaFlags(binary=binary, unique=unique) if binary or unique is not None else None
        new = Content(b"%d" % initial, 0, semantics.expiry(exptime, self.clock.now()), meta)
        try:
            self._carry_out("add", key, new, (Outcome.STORED, new))
        except OutOfMemoryError as error:
            raise OutOfMemoryError(Shortage.NEW_NUMBER) from error
        return Counted(Outcome.STORED, initial, self.table.get(key), created=True)
