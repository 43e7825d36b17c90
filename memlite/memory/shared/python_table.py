"""The shared table in Python: the counterpart of `_native.c`, which explains the protocol.

Locks on bytes of the file exclude other processes; the kernel releases them when their holder
ends. Reads take no lock on processors that keep the order of stores and loads (x86).
"""

import mmap
import platform
import struct
import time
from fcntl import LOCK_EX, LOCK_UN, lockf
from typing import Final

from memlite.memory.item import FETCHED, FREQUENCY, STATE_BITS
from memlite.memory.shared.layout import (
    COUNTERS,
    DEAD,
    EMPTY,
    EPOCH_AT,
    EVICTED,
    EVICTING,
    EXPIRY,
    FLUSH_AT,
    FREE,
    GONE,
    HEAD,
    KEEP,
    MAX_EVICTED,
    MET_EXPIRED,
    MET_EXPIRED_UNFETCHED,
    MET_FLUSHED,
    MET_NONE,
    NEARLY_EMPTY,
    NEVER,
    NOBODY,
    OPEN,
    ORDER_AT,
    PARKED,
    PARKED_AT,
    PLACE,
    PLACE_BITS,
    RECORD,
    RECORD_SIZE,
    REGION_FIELDS,
    REGIONS,
    SEALED,
    SEGMENT_HEADER,
    STEPS_AT,
    UNNAMED,
    USED,
    Layout,
    record_size,
)
from memlite.memory.shared.near import STAMP, Near
from memlite.memory.shared.recovery import recover

__all__ = ["PureTable", "Stored"]

Stored = tuple[bytes, float, int, int, int, bytes]
"""Reply, expiry, cas unique, state, kind, and the extra bytes after the reply."""

_LOG: Final = REGIONS
_EPOCH_WORD: Final = EPOCH_AT // 8
_TAG: Final = (1 << 64 - PLACE_BITS) - 1
_READ: Final = struct.Struct("<I12xd7xB")
"""The fields of a record that a read needs: length of the reply, expiry, kind."""
# Offsets of the fields in a segment header, in units of 8 and of 4 bytes; its size in both.
_GEN, _ORDER, _EPOCH = range(3)
_LATEST: Final = 5
_STATE, _OWNER, _USED, _MAIN = range(6, 10)
_DEAD: Final = 16
_WIDE: Final = SEGMENT_HEADER // 8
_NARROW: Final = SEGMENT_HEADER // 4
# After this many victims for one segment, used items are no longer kept; after more, no segment is
# cleaned.
_KEEP_ALL: Final = 16
_CLEAN_ALL: Final = 32
_TRIES: Final = 64
# Bytes of its segment that a worker fills between two steps; records examined per step; the most
# steps done at once when a large item is stored.
_STEP: Final = 512
_STEP_RECORDS: Final = 256
_MAX_STEPS: Final = 16
_VICTIM, _REACHED, _KEEP, _CLEAN, _CHANGING = range(5)
_UNLIMITED: Final = 0xFFFFFFFF
_SERIAL, _ITEMS, _BYTES, _BUSY = range(4)
# How many times a store tries, evicting a segment between tries to free slots; the result of
# `_put` that requests that.
_SHED: Final = 5
_CROWDED: Final = -2
_DOUBLE: Final = struct.Struct("<d")
_BITS: Final = struct.Struct("<Q")
_IN_ORDER: Final = platform.machine() in ("x86_64", "AMD64", "i686")


class _Lock:
    """The lock of a region. A reused context manager costs a third of a generator-based one."""

    __slots__ = ("_give", "_region", "_take")

    def __init__(self, table: "PureTable", region: int) -> None:
        self._take, self._give, self._region = table.take, table.give, region

    def __enter__(self) -> None:
        self._take(self._region)

    def __exit__(self, *details: object) -> None:
        self._give(self._region)


_Found = tuple[int, int, tuple[int, int, int, float, int, int, int, int]]
"""The number of a slot among all; the place of its record; the record, as unpacked by `RECORD`.
Creating a named tuple would take three times as long."""


class PureTable:
    """Items by request line, in a mapping shared by several processes.

    Args:
        memory: the mapping, with a layout.
        file: its file, which the other processes have open too.

    Attributes:
        second: the current unix second; its lower 27 bits are recorded as the time of uses.
        offset: added to the monotonic clock to get the unix time.
        evicted: a list to which evicted live items are added while they are watched, in the form
            of `layout.EVICTED`; None otherwise.
        evictions: live items that this process has evicted.
        evicted_unfetched: evicted live items that were never read.
        reclaimed: expired items that this process has evicted.
        expired_unfetched: evicted expired items that were never read.
        met: what the last `store` or `delete` found, one of `layout.MET_NONE` etc.
        reinserted: items that this process kept when it evicted their segment.
        evicts: whether live items make room for others.
    """

    def __init__(self, memory: mmap.mmap, file: int) -> None:
        self._memory, self._file = memory, file
        view = memoryview(memory)
        layout = self._layout = Layout.read(view)
        self._segments_at, self._segment_size = layout.segments_at, layout.segment_size
        self._slots_of = layout.slots
        end = layout.slots_at + 8 * layout.slots * REGIONS
        self._slots = view[layout.slots_at : end].cast("Q")
        self._states = view[layout.states_at : layout.states_at + 4 * len(self._slots)].cast("I")
        headers = view[layout.headers_at : layout.headers_at + SEGMENT_HEADER * layout.segments]
        self._wide, self._narrow = headers.cast("Q"), headers.cast("I")
        ghosts_end = layout.ghosts_at + 2 * len(self._slots)
        self._ghosts = view[layout.ghosts_at : ghosts_end].cast("H")
        self._words = view[: layout.size & ~7].cast("Q")
        self._view = view
        self._regions = [
            layout.regions_at // 8 + 16 * number + REGION_FIELDS // 8
            for number in range(REGIONS + 1)
        ]
        self._locks = [_Lock(self, region) for region in range(REGIONS + 1)]
        self._mine = self._filled = -1
        self._steps = view[STEPS_AT : STEPS_AT + 20].cast("I")
        self._next = -1  # becomes `_mine` when that is full
        self._soft = 0  # fill level of `_mine` at which to prepare the next one
        self._tries = 0  # victims chosen ahead since `_mine` was opened
        self._crowded = False  # whether a region was found with few slots left
        self._unlikely = 0  # how many calls of `_nearly_empty` may skip the search
        self._held = -1
        self._epoch = 0  # flush epoch at `hold`; later flushes come after it
        self._worker = 0
        self._second = 0
        self._fetched = FETCHED  # the state of an item read in this second, except for its uses
        self.offset = 0.0
        self.evicted: list[bytes] | None = None
        self.evictions = self.evicted_unfetched = 0
        self.reclaimed = self.expired_unfetched = 0
        self.reinserted = 0
        self.evicts = 1
        self.met = MET_NONE
        self._flush_at = view[FLUSH_AT : FLUSH_AT + 8].cast("d")
        self._near = Near()
        self._hot = self._near.hot
        self._lacked: bytes | None = None

    @property
    def second(self) -> int:
        """See the class."""
        return self._second

    @second.setter
    def second(self, second: int) -> None:
        if second != self._second:
            self._hot.clear()  # the next use of each entry has to be recorded
        self._second = second
        self._fetched = second << STATE_BITS & 0xFFFFFFFF | FETCHED

    def init_locks(self) -> None:
        """Do nothing: the kernel keeps the locks."""

    def attach(self, worker: int) -> None:
        """Become a worker, and resume the segment that an earlier one with its number left open.

        Otherwise, each worker that is killed would cost a segment, for which items are evicted.
        """
        self._worker = worker
        self._mine = self._next = -1
        self._soft = 0
        with self._lock(_LOG):
            self._finish()
            for number in range(self._layout.segments):
                fields = self._narrow[_NARROW * number + _STATE : _NARROW * number + _USED]
                if fields[0] != OPEN or fields[1] != worker:
                    continue
                if not self._narrow[_NARROW * number + _USED]:  # it was to be the next
                    self._narrow[_NARROW * number + _STATE] = FREE
                elif self._mine < 0:
                    self._mine = number
                else:  # at most one, unless two processes had the number
                    self._narrow[_NARROW * number + _STATE] = SEALED
        for region in range(REGIONS):
            if self._words[self._regions[region] + _BUSY]:  # its holder was killed, or is at work
                with self._lock(region):
                    pass

    def recover(self, now: float, shift: float, later: int) -> int:
        """Rebuild the index; see `recovery.recover`."""
        return recover(self._memory, now, shift, later)

    # Locks

    def _lock(self, region: int) -> "_Lock":
        return self._locks[region]

    def take(self, region: int) -> None:
        """Lock a region, unless it is held."""
        if region == self._held:
            return
        lockf(self._file, LOCK_EX, 1, region)
        busy = self._regions[region] + _BUSY
        if self._words[busy] and region != _LOG:
            self._recount(region)  # its holder was killed
        self._words[busy] = 1

    def give(self, region: int) -> None:
        """Unlock a region, unless it is held."""
        if region == self._held:
            return
        self._words[self._regions[region] + _BUSY] = 0
        lockf(self._file, LOCK_UN, 1, region)

    def _recount(self, region: int) -> None:
        slots = self._slots_of
        words = [word for word in self._slots[region * slots : (region + 1) * slots] if word > GONE]
        records = [RECORD.unpack_from(self._memory, (word & PLACE) * 8) for word in words]
        fields = self._regions[region]
        self._words[fields + _ITEMS] = len(words)
        self._words[fields + _BYTES] = sum(record_size(one[0], one[5]) for one in records)

    def hold(self, line: bytes, size: int) -> None:
        """Keep other processes from changing a key until `release`.

        This also reserves a slot, and room for a record `size` bytes longer. Until the release, no
        segment can be opened, and flushes are not seen: they take effect after the command.
        """
        if not _is_line(line):
            return
        region, most = hash(line) >> 24 & 0xFF, self._layout.segment_size
        items = self._regions[region] + _ITEMS
        self._settle()
        if size and self._held < 0:
            self._room(RECORD_SIZE + size)  # a step may be due
        for tries in range(9):
            self._settle()
            self.take(region)
            found, _ = self._look(line)
            need = RECORD_SIZE + size if size else 0
            if size and found is not None:
                need += found[2][0] + found[2][5]
            need = min(need, most)  # no record is longer
            self._epoch = self._words[EPOCH_AT // 8]
            fits = not need or self._fits(need)
            crowded = (
                size and found is None and self.evicts and tries < _SHED - 1
                and self._words[items] >= self._slots_of * 57 // 64
            )  # fmt: skip
            if (fits and not crowded) or tries == 8:
                break
            self.give(region)
            if crowded:
                self._shed()
            if not fits:
                self._room(need)
        self._held = region

    def release(self) -> None:
        """End `hold`."""
        held, self._held = self._held, -1
        if held >= 0:
            self.give(held)

    # Flushing

    def _settle(self) -> None:
        """Carry out a delayed flush that is due, once for all processes."""
        if self._held >= 0 or not self._is_due():  # if held, `hold` has done so
            return
        with self._lock(_LOG):
            if self._is_due():
                self._words[EPOCH_AT // 8] += 1
                self._flush_at[0] = 0.0

    def _is_due(self) -> bool:
        at = self._flush_at[0]
        return bool(at) and at <= time.monotonic() + self.offset

    def flush(self, at: float) -> None:
        """Invalidate every item, now (0) or at a unix time; segments are reused as usual.

        A later call replaces a pending one.
        """
        with self._lock(_LOG):
            if not at:
                self._words[EPOCH_AT // 8] += 1
            self._flush_at[0] = at

    def drop_flushed(self, line: bytes) -> bool:
        """Remove a flushed item; return whether there was one."""
        if not _is_line(line) or not self._words[EPOCH_AT // 8]:
            return False
        with self._lock(hash(line) >> 24 & 0xFF):
            found, _ = self._look(line)
            if found is None or self._is_current(found[1]):
                return False
            self._clear(found[0], found[1], record_size(found[2][0], found[2][5]))
            return True

    def _meet(self, found: _Found) -> int:
        expires = found[2][3]
        if not self._is_current(found[1]):
            return MET_FLUSHED
        if not expires or expires > time.monotonic() + self.offset:
            return MET_NONE
        return MET_EXPIRED if self._states[found[0]] & FETCHED else MET_EXPIRED_UNFETCHED

    # Slots

    def _first(self, low: int) -> int:
        return ((low << 8 & 0xFFFFFFFF) * self._slots_of) >> 32

    def _look(self, line: bytes) -> tuple[_Found | None, int]:
        """Return the record of a line, and the first slot that could take it, -1 for none."""
        code = hash(line)
        low, tag, key = code & 0xFFFFFFFF, code >> 50 & _TAG, line[4:-2]
        slots, count = self._slots, self._slots_of
        base, at, free = (low >> 24) * count, ((low << 8 & 0xFFFFFFFF) * count) >> 32, -1
        for _ in range(count):
            word = slots[base + at]
            if word <= GONE:
                if free < 0:
                    free = base + at
                if word == EMPTY:
                    break
            elif word >> PLACE_BITS == tag:
                place = (word & PLACE) * 8
                stored = RECORD.unpack_from(self._memory, place)
                if stored[1] == low and stored[6] == len(key):
                    begin = place + RECORD_SIZE + (stored[0] if stored[7] & UNNAMED else 6)
                    if self._memory[begin : begin + len(key)] == key:
                        return (base + at, place, stored), free
            at = at + 1 if at + 1 < count else 0
        return None, free

    def _slot_of(self, low: int, place: int) -> int:
        """Return the slot that points to a place, -1 if none does."""
        slots, count = self._slots, self._slots_of
        base, at = (low >> 24) * count, self._first(low)
        for _ in range(count):
            word = slots[base + at]
            if word == EMPTY:
                return -1
            if word & PLACE == place:
                return base + at
            at = at + 1 if at + 1 < count else 0
        return -1

    def _clear(self, slot: int, place: int, size: int) -> None:
        """Empty a slot, and the removed slots before it that only led to it."""
        slots, count = self._slots, self._slots_of
        region, at = divmod(slot, count)
        fields, base = self._regions[region], region * count
        self._words[fields + _ITEMS] -= 1
        self._words[fields + _BYTES] -= size
        self._count_dead(self._segment_of(place), size)
        slots[slot] = GONE
        self._memory[place + RECORD_SIZE - 1] |= DEAD  # not earlier: eviction skips dead records
        if slots[base + (at + 1) % count] != EMPTY:
            return
        while slots[base + at] == GONE:
            slots[base + at] = EMPTY
            at = (at or count) - 1

    # Segments

    def _segment_of(self, at: int) -> int:
        return (at - self._layout.segments_at) // self._layout.segment_size

    def _is_current(self, at: int) -> bool:
        epoch = self._epoch if self._held >= 0 else self._words[_EPOCH_WORD]
        segment = (at - self._segments_at) // self._segment_size
        return self._wide[_WIDE * segment + _EPOCH] == epoch

    def _count_dead(self, segment: int, size: int) -> None:
        at = _NARROW * segment + _DEAD + self._worker % COUNTERS
        self._narrow[at] = self._narrow[at] + size & 0xFFFFFFFF

    def _note_latest(self, segment: int, expires: float) -> None:
        latest = _bits_of(expires) if expires else NEVER
        if latest > self._wide[_WIDE * segment + _LATEST]:
            self._wide[_WIDE * segment + _LATEST] = latest

    def _ghost_of(self, low: int, tag: int) -> tuple[int, int]:
        """Return the place of a key's ghost, and the fingerprint that stands for the key there."""
        return (low >> 24) * self._slots_of + self._first(low), (tag << 2 | low & 3) & 0xFFFF | 1

    def _begin(self, segment: int, owner: int, main: int) -> None:
        narrow, wide = self._narrow, self._wide
        order = self._words[ORDER_AT // 8] + 1
        wide[_WIDE * segment + _ORDER] = self._words[ORDER_AT // 8] = order
        wide[_WIDE * segment + _EPOCH] = self._words[EPOCH_AT // 8]
        wide[_WIDE * segment + _LATEST] = 0
        at = _NARROW * segment
        narrow[at + _OWNER], narrow[at + _USED], narrow[at + _MAIN] = owner, 0, main
        for number in range(COUNTERS):
            narrow[at + _DEAD + number] = 0
        narrow[at + _STATE] = OPEN

    def _next_in(self, state: int) -> int:
        """Return the oldest segment in a state, -1 if there is none."""
        states = self._narrow[_STATE::_NARROW].tolist()
        if state not in states:
            return -1
        orders = self._wide[_ORDER::_WIDE].tolist()
        return min((one for one, its in enumerate(states) if its == state), key=orders.__getitem__)

    def _has_room(self, segment: int, size: int) -> bool:
        return (
            segment >= 0
            and self._wide[_WIDE * segment + _EPOCH] == self._words[EPOCH_AT // 8]
            and self._narrow[_NARROW * segment + _USED] + size <= self._layout.segment_size
        )

    def _main_with(self, size: int) -> int:
        """Return the segment that the main queue fills, with `size` bytes free; -1 for none."""
        if self._fills_main(self._filled) and self._has_room(self._filled, size):
            return self._filled  # as before: no need to look
        for segment in range(self._layout.segments):
            if self._fills_main(segment):
                if self._has_room(segment, size):
                    self._filled = segment
                    return segment
                self._narrow[_NARROW * segment + _STATE] = SEALED
        segment = self._filled = self._next_in(FREE)
        if segment >= 0:
            self._begin(segment, NOBODY, 1)
        return segment

    def _fills_main(self, segment: int) -> bool:
        at = _NARROW * segment
        narrow = self._narrow
        return segment >= 0 and narrow[at + _STATE] == OPEN and narrow[at + _OWNER] == NOBODY

    def _gone(self, segment: int, now: float) -> int:
        """Return the bytes of dead records in a segment, as far as known without reading them."""
        used = self._narrow[_NARROW * segment + _USED]
        latest = self._wide[_WIDE * segment + _LATEST]
        if self._wide[_WIDE * segment + _EPOCH] != self._words[EPOCH_AT // 8]:
            return used
        if latest != NEVER and _double_of(latest) <= now:
            return used
        first = _NARROW * segment + _DEAD
        return min(used, sum(self._narrow[first : first + COUNTERS]) & 0xFFFFFFFF)

    def _choose(self, need: int = 0) -> tuple[int, bool]:
        """Return which segment to reuse, and whether its items are to be kept.

        Cleaning pays if a sixth of the segment is dead, or if its items take no more than half of
        it: two such segments fit into one. Where nothing may be evicted, cleaning pays if the items
        and `need` more bytes fit into one segment. If it does not pay, the policy is S3-FIFO by
        segments: new items enter the small queue, a tenth of all; items used at least twice there
        move to the main queue, and the others leave a fingerprint among the ghosts, so that they
        count as used twice when they return.
        """
        oldest, emptiest, small = [-1, -1], -1, 0
        whole, least = self._layout.segment_size, self._layout.segment_size + 1
        parts = self._layout.segments - self._words[PARKED_AT // 8]
        orders, now = self._wide[_ORDER::_WIDE], time.monotonic() + self.offset
        for segment, state in enumerate(self._narrow[_STATE::_NARROW]):
            main = self._narrow[_NARROW * segment + _MAIN] != 0
            small += state not in (FREE, PARKED) and not main
            if state != SEALED:
                continue
            if oldest[main] < 0 or orders[segment] < orders[oldest[main]]:
                oldest[main] = segment
            gone = self._gone(segment, now)
            left = self._narrow[_NARROW * segment + _USED] - gone
            pays = left + need <= whole
            if self.evicts:
                pays = gone >= whole // 6 or left <= whole // 2
            if pays and left < least:
                least, emptiest = left, segment
        if not self.evicts or emptiest >= 0:
            return emptiest, True
        if oldest[0] >= 0 and (small > parts // 10 or oldest[1] < 0):
            return oldest[0], False
        return oldest[1], False

    def _nearly_empty(self) -> int:
        """Return the youngest segment with hardly any items, or -1.

        It is reused before one that has been idle for long: it is still in the caches and page
        tables of a process that keeps overwriting the same items.
        """
        if self._unlikely:
            self._unlikely -= 1
            return -1
        found, few = -1, self._layout.segment_size // NEARLY_EMPTY
        orders, now = self._wide[_ORDER::_WIDE], time.monotonic() + self.offset
        for segment, state in enumerate(self._narrow[_STATE::_NARROW]):
            if state != SEALED or (found >= 0 and orders[segment] < orders[found]):
                continue
            if self._narrow[_NARROW * segment + _USED] - self._gone(segment, now) <= few:
                found = segment
        if found < 0:
            self._unlikely = self._layout.segments // 256  # searching many takes long
        return found

    def _mark_evicted(self, victim: int, into: int) -> None:
        """Record that a segment is about to be freed, and where its items move; see `_finish`."""
        self._steps[_CHANGING] = 1
        self._narrow[_NARROW * victim + _OWNER] = into if into >= 0 else NOBODY
        self._narrow[_NARROW * victim + _STATE] = EVICTING

    def _mark_as(self, victim: int, state: int) -> None:
        self._narrow[_NARROW * victim + _STATE] = state
        self._steps[_CHANGING] = 0

    def _finish(self) -> None:
        """Complete an eviction that a killed process had begun; called before segments change.

        All items are kept, as it may have been cleaning. They move into that process's own segment
        if it was already open. No other process writes there: its successor calls this first.
        """
        if not self._steps[_CHANGING]:
            return
        narrow = self._narrow
        states = narrow[_STATE::_NARROW].tolist()
        self._words[PARKED_AT // 8] = states.count(PARKED)
        for victim, state in enumerate(states):
            if state != EVICTING:
                continue
            into = narrow[_NARROW * victim + _OWNER]
            if into != NOBODY and narrow[_NARROW * into + _STATE] != OPEN:
                narrow[_NARROW * victim + _STATE] = SEALED  # nothing has moved yet
                continue
            for segment in range(len(states)):
                at, main = _NARROW * segment, into == NOBODY
                if narrow[at + _STATE] == OPEN and (
                    narrow[at + _OWNER] == NOBODY if main else segment == into
                ):
                    self._count_last(segment)
            self._evict(victim, clean=True, into=-1 if into == NOBODY else into)
        self._steps[_CHANGING] = 0

    def _count_last(self, segment: int) -> None:
        """Count a record that a process had moved to the end of a segment when it was killed.

        In the reverse order, records that no slot points to would take up room.
        """
        layout, used = self._layout, self._narrow[_NARROW * segment + _USED]
        at = layout.segments_at + segment * layout.segment_size + used
        if used + RECORD_SIZE > layout.segment_size:
            return
        length, low, _, _, _, extra, _, _ = RECORD.unpack_from(self._memory, at)
        with self._lock(low >> 24):  # it may be garbage: slots decide
            if self._slot_of(low, at // 8) >= 0:
                self._narrow[_NARROW * segment + _USED] = used + record_size(length, extra)

    def _evict(self, victim: int, *, clean: bool, into: int = -1, keep: int = 0) -> bool:
        """Evict all of a segment; return whether it is free. See `_evict_some`."""
        if self._steps[_VICTIM] == victim + 1:
            self._steps[_VICTIM] = 0
        return self._evict_some(victim, _UNLIMITED, clean=clean, into=into, keep=keep)[0] == 1

    def _evict_some(
        self, victim: int, most: int, *, clean: bool, into: int = -1, keep: int = 0,
        reached: int = 0,
    ) -> tuple[int, int, int]:  # fmt: skip
        """Free a segment, and move items used often enough, or all if `clean`, elsewhere.

        Args:
            victim: the segment.
            most: how many records to examine.
            clean: whether all items are kept.
            into: the segment that they move into; -1 for the main queue.
            keep: how many bytes of items to keep at most, unless `clean`.
            reached: the offset to begin at.

        Returns:
            1 if the segment is free, 2 if it has more records, 0 if there was no room for items
            that had to be kept; how many bytes may still be kept; the offset reached.
        """
        narrow, layout, memory = self._narrow, self._layout, self._memory
        self._mark_evicted(victim, into)
        base = layout.segments_at + victim * layout.segment_size
        live = self._wide[_WIDE * victim + _EPOCH] == self._words[EPOCH_AT // 8]
        worth = 1 if narrow[_NARROW * victim + _MAIN] else 2
        now = time.monotonic() + self.offset
        at, end = base + reached, base + narrow[_NARROW * victim + _USED]
        while at < end and most:
            most -= 1
            length, low, _, expires, _, extra, _, kind = RECORD.unpack_from(memory, at)
            size = record_size(length, extra)
            place, at = at, at + size
            if kind & DEAD:
                continue
            with self._lock(low >> 24):
                slot = self._slot_of(low, place // 8)
                if slot < 0:
                    continue
                state = self._states[slot]
                expired, target = bool(expires) and expires <= now, -1
                if live and not expired and (
                    clean or (state & FREQUENCY >= worth and size <= keep)
                ):  # fmt: skip
                    if into < 0:
                        target = self._main_with(size)
                    elif self._has_room(into, size):
                        target = into
                    if target < 0 and clean:
                        self._mark_as(victim, SEALED)
                        return 0, keep, 0
                if target >= 0:
                    self._move(place, size, slot, target)
                    if not clean:
                        self._states[slot] = state - 1 if worth == 1 else state & ~FREQUENCY
                        keep -= size
                    self._count_dead(victim, size)
                    self.reinserted += 1
                    continue
                unread = not state & FETCHED
                if live and not expired and self.evicted is not None:
                    self._tell_evicted(place, state)
                if live and not expired and worth > 1:
                    ghost, name = self._ghost_of(low, self._slots[slot] >> PLACE_BITS)
                    self._ghosts[ghost] = name
                self._clear(slot, place, size)
                if live and expired:
                    self.reclaimed += 1
                    self.expired_unfetched += unread
                elif live:
                    self.evictions += 1
                    self.evicted_unfetched += unread
        if at < end:
            self._mark_as(victim, SEALED)
            return 2, keep, at - base
        # While still EVICTING: after a kill, no process may go on with steps in a reused segment.
        if self._steps[_VICTIM] == victim + 1:
            self._steps[_VICTIM] = 0
        self._wide[_WIDE * victim + _GEN] += 1
        narrow[_NARROW * victim + _USED] = 0
        self._mark_as(victim, FREE)
        return 1, keep, 0

    def _tell_evicted(self, place: int, state: int) -> None:
        assert self.evicted is not None  # noqa: S101 - items are watched
        if len(self.evicted) < MAX_EVICTED:
            length, _, _, expires, _, _, key, kind = RECORD.unpack_from(self._memory, place)
            begin = place + RECORD_SIZE
            key_at = begin + (length if kind & UNNAMED else 6)
            head = self._memory[begin : begin + min(length, HEAD)]
            name = self._memory[key_at : key_at + key]
            self.evicted.append(EVICTED.pack(expires, state, length, key) + name + head)

    def _move(self, place: int, size: int, slot: int, target: int) -> None:
        """Copy a record to the end of a segment, and point its slot there."""
        narrow, layout, memory = self._narrow, self._layout, self._memory
        used = narrow[_NARROW * target + _USED]
        copy = layout.segments_at + target * layout.segment_size + used
        memory[copy : copy + size] = memory[place : place + size]
        self._note_latest(target, RECORD.unpack_from(memory, place)[3])
        self._slots[slot] = self._slots[slot] & ~PLACE | copy // 8
        narrow[_NARROW * target + _USED] = used + size  # see `_count_last`
        memory[place + RECORD_SIZE - 1] |= DEAD

    def _seal(self) -> None:
        if self._mine >= 0:
            self._narrow[_NARROW * self._mine + _STATE] = SEALED
        self._mine = -1

    def _compact(self, size: int) -> bool:
        """Make room where nothing may be evicted: move the items of the emptiest segment."""
        narrow = self._narrow
        for _ in range(_TRIES):
            own, mine = self._mine, self._next_in(FREE)
            self._seal()  # it may be the victim
            victim = self._choose(size)[0] if mine >= 0 else -1
            if victim < 0:
                if own >= 0:
                    narrow[_NARROW * own + _STATE] = OPEN
                self._mine = own
                return False
            # First: from here on, no segment is free until the victim is.
            self._mark_evicted(victim, mine)
            self._begin(mine, self._worker, 0)
            self._evict(victim, clean=True, into=mine)
            self._mine = mine
            if narrow[_NARROW * mine + _USED] + size <= self._layout.segment_size:
                return True
        return False

    def _free_segments(self) -> int:
        return self._narrow[_STATE::_NARROW].tolist().count(FREE)

    def _step(self, most: int) -> int:
        """Continue the stepwise eviction of a segment; return the outcome, as `_evict_some`."""
        steps, done = self._steps, 0
        victim, keep, reached = steps[_VICTIM] - 1, steps[_KEEP], steps[_REACHED]
        if self._narrow[_NARROW * victim + _STATE] == SEALED:
            done, keep, reached = self._evict_some(
                victim, most, clean=bool(steps[_CLEAN]), keep=keep, reached=reached
            )
        if done == 2:
            steps[_KEEP], steps[_REACHED] = keep, reached
        else:
            steps[_VICTIM] = 0
        return done

    def _begin_steps(self, victim: int, *, clean: bool, keep: int) -> None:
        steps = self._steps
        steps[_CLEAN], steps[_KEEP], steps[_REACHED] = clean, keep, 0
        steps[_VICTIM] = victim + 1

    def _free_two(self) -> bool:
        """Free a segment besides the one that is always free; return whether there is one."""
        for tries in range(_TRIES + 1):
            if self._free_segments() >= 2:
                return True
            if self._steps[_VICTIM]:
                self._step(_UNLIMITED)
                continue
            victim, clean = self._choose()
            if victim < 0:
                return False
            keep = _UNLIMITED if tries < _KEEP_ALL else 0
            self._evict(victim, clean=clean and tries < _CLEAN_ALL, keep=keep)
        return False

    def park(self) -> int:
        """Free a segment, return its memory to the system, and take it out of use.

        Returns:
            Its number; -1 if enough are parked already, or nothing can be evicted.
        """
        words, parked = self._words, PARKED_AT // 8
        if words[parked] >= words[parked + 1]:
            return -1
        with self._lock(_LOG):
            self._finish()
            if words[parked] >= words[parked + 1]:
                return -1
            if not self.evicts and self._free_segments() < 2:
                return -1
            if not self._free_two():
                return -1
            segment, size = self._next_in(FREE), self._layout.segment_size
            # Before any process can reuse it.
            self._memory.madvise(mmap.MADV_REMOVE, self._layout.segments_at + segment * size, size)
            self._steps[_CHANGING] = 1
            self._narrow[_NARROW * segment + _STATE] = PARKED
            words[parked] += 1
            self._steps[_CHANGING] = 0
            return segment

    def unpark(self, number: int) -> None:
        """Put a parked segment back into use; it must have memory again."""
        with self._lock(_LOG):
            self._finish()
            if self._narrow[_NARROW * number + _STATE] == PARKED:
                self._steps[_CHANGING] = 1
                self._words[PARKED_AT // 8] -= 1
                self._mark_as(number, FREE)

    def _open(self, size: int) -> bool:
        """Open a segment with room for `size` bytes; return whether there is one."""
        if size > self._layout.segment_size or self._held >= 0:
            return False
        with self._lock(_LOG):
            self._finish()
            self._soft = self._tries = 0
            mine, self._next = self._next, -1
            if mine >= 0 and not self._is_next(mine):
                mine = -1
            if mine < 0:
                if self._free_segments() < 2:  # one stays free for items that are kept
                    if not self.evicts:
                        return self._compact(size)
                    self._seal()
                    self._free_two()
                elif self.evicts:
                    reused = self._nearly_empty()
                    if reused >= 0 and self._evict(reused, clean=True):
                        mine = reused
            if mine < 0:
                mine = self._next_in(FREE)
            if mine < 0:
                return False
            self._seal()
            self._begin(mine, self._worker, 0)
            self._mine = mine
            return True

    def _is_next(self, segment: int) -> bool:
        """Return whether a segment is still reserved for this worker."""
        at, narrow = _NARROW * segment, self._narrow
        fields = narrow[at + _STATE], narrow[at + _OWNER], narrow[at + _USED]
        return fields == (OPEN, self._worker, 0)

    def _ahead(self, size: int) -> None:
        """Do one step towards freeing the segment needed when ours is full.

        A step chooses a victim, or evicts some of its records. No client then waits for the
        eviction of a whole segment, let alone of several cleaned to gain one. Steps begin in the
        last quarter of our segment, since items evicted early would be missed.
        """
        whole = self._segment_size
        first, pause = whole - whole // 4, _STEP
        used = self._narrow[_NARROW * self._mine + _USED] + size
        crowded, self._crowded = self._crowded, False
        if crowded or (self._next < 0 and used > first):
            with self._lock(_LOG):
                self._finish()
                if self._steps[_VICTIM]:
                    if not self._step(min(1 + size // _STEP, _MAX_STEPS) * _STEP_RECORDS):
                        self._tries = _CLEAN_ALL  # there is no room for the items to keep
                elif not self._prepare(crowded=crowded):
                    pause = whole // 32
        if self._next >= 0:
            self._soft = whole
        else:
            self._soft = first if used < first else min(used + pause, whole)

    def _prepare(self, *, crowded: bool) -> bool:
        """Reserve the next segment, or choose one to free; return whether either was possible."""
        if crowded:
            victim = self._next_in(SEALED)
            if victim >= 0:
                self._begin_steps(victim, clean=False, keep=self._segment_size // 2)
            return victim >= 0
        free = self._free_segments()
        if free > 2:
            return False
        if free == 2:
            at = _NARROW * (segment := self._next_in(FREE))
            self._narrow[at + _OWNER] = self._worker
            self._narrow[at + _MAIN] = 1  # not in the small queue until it is filled
            self._narrow[at + _STATE] = OPEN
            self._next = segment
            return True
        victim, clean = self._choose()
        if victim >= 0:
            clean, keep = clean and self._tries < _CLEAN_ALL, self._tries < _KEEP_ALL
            self._begin_steps(victim, clean=clean, keep=_UNLIMITED if keep else 0)
            self._tries += 1
        return victim >= 0

    def _room(self, size: int) -> bool:
        if not self._fits(size):
            return self._open(size)
        if self._narrow[_NARROW * self._mine + _USED] + size > self._soft:
            if not self.evicts:
                self._soft = self._segment_size
            elif self._held < 0:
                self._ahead(size)
        return True

    def _fits(self, size: int) -> bool:
        mine = self._mine
        epoch = self._epoch if self._held >= 0 else self._words[_EPOCH_WORD]
        return (
            mine >= 0
            and self._wide[_WIDE * mine + _EPOCH] == epoch
            and self._narrow[_NARROW * mine + _USED] + size <= self._segment_size
        )

    def _shed(self) -> None:
        with self._lock(_LOG):
            self._finish()
            victim = self._next_in(SEALED)
            if victim >= 0:
                self._evict(victim, clean=False, keep=self._layout.segment_size // 2)

    # Items

    def find(self, line: bytes) -> bytes | None:
        """Return the reply to a get by its line, or None; this counts as a use."""
        entry = self._hot.get(line)
        if entry is not None:
            slot, word, at, bits, expires, reply = entry
            if (
                self._slots[slot] == word
                and self._words[at] == bits
                and (not bits or expires > time.monotonic() + self.offset)
                and self._memory[STAMP] == self._near.stamp  # checked last: see `near`
            ):
                return reply
        if not _is_line(line):
            return None
        if self._flush_at[0]:
            self._settle()
        if not _IN_ORDER:
            with self._lock(hash(line) >> 24 & 0xFF):
                return self._find(line)
        entry = self._near.known(line, self._memory)
        if entry is not None:
            slot, word, at, bits, expires, reply = entry
            if (
                self._slots[slot] == word
                and self._words[at] == bits
                and (not bits or expires > time.monotonic() + self.offset)
                and self._memory[STAMP] == self._near.stamp
            ):
                used = self._states[slot] & FREQUENCY
                self._states[slot] = self._fetched | used + (used < FREQUENCY)
                if used >= FREQUENCY - 1:
                    self._hot[line] = entry
                return reply
        return self._find(line)

    def find_all(self, lines: list[bytes], *, stop: bool) -> list[bytes | None]:
        """Return the result of `find` for each line, in order.

        Args:
            lines: the lines.
            stop: whether to end after the first line without a reply.
        """
        slots, words, find, hot, now = self._slots, self._words, self.find, self._hot, 0.0
        stamp = self._near.stamp
        replies: list[bytes | None] = []
        for line, entry in zip(lines, map(hot.get, lines), strict=True):
            if entry is not None:
                slot, word, at, bits, expires, reply = entry
                if slots[slot] == word and words[at] == bits:
                    if bits:
                        now = now or time.monotonic() + self.offset
                    if not bits or expires > now:
                        replies.append(reply)
                        continue
            found = find(line)
            replies.append(found)
            if found is None and stop:
                break
        if self._memory[STAMP] == stamp:  # the stamp of all hot entries
            return replies
        replies.clear()
        for found in map(find, lines):
            replies.append(found)
            if found is None and stop:
                break
        return replies

    def _find(self, line: bytes) -> bytes | None:
        code = hash(line)
        low, tag, count = code & 0xFFFFFFFF, code >> 50 & _TAG, self._slots_of
        slots, wide, memory = self._slots, self._wide, self._memory
        base = (low >> 24) * count
        at = ((low << 8 & 0xFFFFFFFF) * count) >> 32
        for _ in range(count):
            word = slots[base + at]
            while word > GONE and word >> PLACE_BITS == tag:
                place = (word & PLACE) * 8
                gen_at = (place - self._segments_at) // self._segment_size * _WIDE
                gen = wide[gen_at]
                if slots[base + at] == word:
                    length, expires, kind = _READ.unpack_from(memory, place)
                    epoch = wide[gen_at + _EPOCH]
                    begin = place + RECORD_SIZE
                    reply = memory[begin : begin + length]
                    if wide[gen_at] == gen:
                        if not reply.startswith(b"VALUE %b " % line[4:-2]):
                            break
                        if epoch != self._words[_EPOCH_WORD] or (
                            expires and expires <= time.monotonic() + self.offset
                        ):
                            return None
                        used = self._states[base + at] & FREQUENCY
                        self._states[base + at] = self._fetched | used + (used < FREQUENCY)
                        if kind & ~DEAD:
                            return None
                        if used and _IN_ORDER and not self._flush_at[0]:
                            bits = _bits_of(expires) if expires else 0
                            entry = (base + at, word, place // 8 + 2, bits, expires, reply)
                            self._near.keep(line, entry)
                        return reply
                word = slots[base + at]
            if word == EMPTY:
                break
            at = at + 1 if at + 1 < count else 0
        else:
            return None
        self._lacked = line
        return None

    def lacks(self, line: bytes) -> bool:
        """Return whether the last `find` was for this line, and found no item in any state."""
        lacked, self._lacked = self._lacked, None
        return lacked is line

    def get(self, line: bytes) -> Stored | None:
        """Return all fields of an item, or None; this does not count as a use."""
        if not _is_line(line):
            return None
        if self._flush_at[0]:
            self._settle()
        if not _IN_ORDER:
            with self._lock(hash(line) >> 24 & 0xFF):
                return self._get(line)
        return self._get(line)

    def _get(self, line: bytes) -> Stored | None:
        code = hash(line)
        low, tag, count = code & 0xFFFFFFFF, code >> 50 & _TAG, self._slots_of
        slots, wide, memory, key = self._slots, self._wide, self._memory, line[4:-2]
        base = (low >> 24) * count
        at = ((low << 8 & 0xFFFFFFFF) * count) >> 32
        for _ in range(count):
            word = slots[base + at]
            while word > GONE and word >> PLACE_BITS == tag:
                place = (word & PLACE) * 8
                gen_at = (place - self._segments_at) // self._segment_size * _WIDE
                gen = wide[gen_at]
                if slots[base + at] == word:
                    length, its, unique, expires, _, extra, size, kind = RECORD.unpack_from(
                        memory, place
                    )
                    epoch = wide[gen_at + _EPOCH]
                    begin = place + RECORD_SIZE
                    reply = memory[begin : begin + length]
                    more = memory[begin + length : begin + length + extra] if extra else b""
                    if wide[gen_at] == gen:
                        name = more[:size] if kind & UNNAMED else reply[6 : 6 + size]
                        if its != low or name != key:
                            break
                        if epoch != (self._epoch if self._held >= 0 else self._words[_EPOCH_WORD]):
                            return None
                        return reply, expires, unique, self._states[base + at], kind & ~DEAD, more
                word = slots[base + at]
            if word == EMPTY:
                return None
            at = at + 1 if at + 1 < count else 0
        return None

    def store(
        self, line: bytes, reply: bytes, expires: float, condition: int | None, kind: int,
        extra: bytes,
    ) -> int:  # fmt: skip
        """Store an item.

        Args:
            line: the request line.
            reply: the reply to it.
            expires: unix time; 0 for never.
            condition: the cas unique that the present item must have; 0 for no item, None for any.
            kind: the kind of record, as in `layout`. With `USED`, an item that replaces another
                counts as fetched; with `KEEP`, it takes over that item's cas unique, and with
                `EXPIRY` its expiry.
            extra: bytes to keep after the reply.

        Returns:
            The cas unique; 0 if the condition does not hold, -1 if there is no room.
        """
        if not _is_line(line):
            raise ValueError("not a request line, or too large")
        if self._flush_at[0]:
            self._settle()
        size = RECORD_SIZE + 7 + len(reply) + len(extra) & ~7
        if not self._room(size):
            return -1
        region = hash(line) >> 24 & 0xFF
        for tries in range(_SHED):
            self.take(region)
            try:
                unique = self._put(
                    region, line, reply, expires, condition, kind, extra, size,
                    self._held >= 0 or not self.evicts or tries == _SHED - 1,
                )  # fmt: skip
            finally:
                self.give(region)
            if unique != _CROWDED:
                return unique
            self._shed()
        return -1

    def _put(
        self, region: int, line: bytes, reply: bytes, expires: float, condition: int | None,
        kind: int, extra: bytes, size: int, last: bool,
    ) -> int:  # fmt: skip
        """Carry out `store` with the region locked; on the last try even if slots run low."""
        code = hash(line)
        low, tag = code & 0xFFFFFFFF, code >> 50 & _TAG
        words, memory, narrow, states = self._words, self._memory, self._narrow, self._states
        found, free = self._look(line)
        if condition is not None and condition != self._unique_of(found):
            return 0
        fields = self._regions[region]
        if found is None:
            if not last and words[fields + _ITEMS] >= self._slots_of * 56 // 64:
                if words[fields + _ITEMS] >= self._slots_of * 57 // 64:
                    return _CROWDED
                self._crowded, self._soft = True, 0  # the next store does a step
            if free < 0:
                return -1
        if kind & EXPIRY and found is not None:
            expires = found[2][3]
        if kind & KEEP and found is not None:
            unique = found[2][2]
        else:
            words[fields + _SERIAL] = serial = words[fields + _SERIAL] + 1
            unique = serial * REGIONS + region
        mine, second = self._mine, self._second
        used_at = _NARROW * mine + _USED
        used = narrow[used_at]
        at = self._segments_at + mine * self._segment_size + used
        record = RECORD.pack(
            len(reply), low, unique, expires, second & 0xFFFFFFFF, len(extra), len(line) - 6,
            kind & ~(USED | KEEP | EXPIRY),
        )  # fmt: skip
        begin = at + RECORD_SIZE
        end = begin + len(reply)
        memory[at:begin] = record
        memory[begin:end] = reply
        if extra:
            memory[end : end + len(extra)] = extra
        self._note_latest(mine, expires)
        narrow[used_at] = used + size
        word = at // 8 | tag << PLACE_BITS
        second = second << STATE_BITS & 0xFFFFFFFF
        if found is None:
            self.met = MET_NONE
            ghost, name = self._ghost_of(low, tag)
            if self._ghosts[ghost] == name:
                self._ghosts[ghost] = 0
                second |= 2  # it counts as used twice
            states[free] = second
            self._slots[free] = word
            words[fields + _ITEMS] += 1
            words[fields + _BYTES] += size
            return unique
        slot, place, stored = found
        self.met = self._meet(found)
        bits = states[slot] & FREQUENCY
        fetched = FETCHED if kind & USED else 0
        states[slot] = second | fetched | bits + (bits < FREQUENCY)
        before = RECORD_SIZE + 7 + stored[0] + stored[5] & ~7
        self._count_dead((place - self._segments_at) // self._segment_size, before)
        self._slots[slot] = word
        memory[place + RECORD_SIZE - 1] = stored[7] | DEAD
        if before != size:
            words[fields + _BYTES] += size - before
        return unique

    def _unique_of(self, found: _Found | None) -> int:
        return found[2][2] if found is not None and self._is_live(found) else 0

    def _is_live(self, found: _Found) -> bool:
        expires = found[2][3]
        return self._is_current(found[1]) and not (
            expires and expires <= time.monotonic() + self.offset
        )

    def delete(self, line: bytes, condition: int | None) -> bool:
        """Remove an item, if it has the cas unique `condition`; return whether it was live."""
        self.met = MET_NONE
        if not _is_line(line):
            return False
        if self._flush_at[0]:
            self._settle()
        with self._lock(hash(line) >> 24 & 0xFF):
            found, _ = self._look(line)
            if found is None or condition not in (None, found[2][2]):
                return False
            self.met = self._meet(found)
            self._clear(found[0], found[1], record_size(found[2][0], found[2][5]))
            return self.met == MET_NONE

    def touch(self, line: bytes, expires: float) -> bool:
        """Change the expiry of a live item; return whether there is one."""
        if not _is_line(line):
            return False
        if self._flush_at[0]:
            self._settle()
        with self._lock(hash(line) >> 24 & 0xFF):
            found, _ = self._look(line)
            if found is None or not self._is_live(found):
                return False
            self._note_latest(self._segment_of(found[1]), expires)
            self._words[found[1] // 8 + 2] = _bits_of(expires)
            return True


def _bits_of(number: float) -> int:
    bits: int = _BITS.unpack(_DOUBLE.pack(number))[0]
    return bits


def _double_of(bits: int) -> float:
    number: float = _DOUBLE.unpack(_BITS.pack(bits))[0]
    return number


def _is_line(line: bytes) -> bool:
    return 7 <= len(line) <= 256 and line[:4] == b"get " and line[-2:] == b"\r\n"
