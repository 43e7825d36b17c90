"""Rebuilds the index of a table kept in a file; `_native.c` has the counterpart in C.

Python's hash of a key differs in each process start, and so do the slots. The old index says which
records are items; a worker that was killed may have left others. Any inconsistency is an error.
"""

import mmap
import re
from typing import Final

from memlite.memory.item import STATE_BITS
from memlite.memory.shared.layout import (
    COUNTERS,
    DEAD,
    EMPTY,
    EPOCH_AT,
    EVICTING,
    FLUSH_AT,
    FREE,
    GONE,
    LIVE,
    META,
    NEVER,
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
    Layout,
    record_size,
)

__all__ = ["recover"]

_WIDE: Final = SEGMENT_HEADER // 8
_NARROW: Final = SEGMENT_HEADER // 4
_MOST: Final = 0xFFFFFFFF >> STATE_BITS
_FLAGS: Final = (1 << STATE_BITS) - 1
_META_SIZE: Final = 9
_MAX_KEY_LENGTH: Final = 250
_LATEST: Final = 2.0**64
"""No expiry is later."""
_NUMBERS: Final = re.compile(rb" ([0-9]{1,10}) ([0-9]{1,10})\r\n")
_END: Final = b"\r\nEND\r\n"


def recover(memory: mmap.mmap, now: float, shift: float, later: int) -> int:
    """Rebuild the index, while no other process uses the table.

    Expired and flushed items are dropped. Later cas uniques are larger than all previous ones.

    Args:
        memory: the mapping.
        now: the unix time.
        shift: seconds by which expiries move, because the clock was set.
        later: seconds by which the times of last use move.

    Returns:
        The number of items.

    Raises:
        ValueError: the table is damaged; it has to be emptied.
    """
    return _Recovery(memory, now, shift, later).run()


class _Recovery:
    def __init__(self, memory: mmap.mmap, now: float, shift: float, later: int) -> None:
        view = memoryview(memory)
        self._memory, self._view = memory, view
        self._layout = layout = Layout.read(view)
        self._now, self._shift, self._later = now, shift, later
        self._words = view[: layout.size & ~7].cast("Q")
        count = layout.slots * REGIONS
        self._slots = view[layout.slots_at : layout.slots_at + 8 * count].cast("Q")
        self._states = view[layout.states_at : layout.states_at + 4 * count].cast("I")
        headers = view[layout.headers_at : layout.headers_at + SEGMENT_HEADER * layout.segments]
        self._wide, self._narrow = headers.cast("Q"), headers.cast("I")
        self._serial = 0
        self._items = [0] * REGIONS
        self._bytes = [0] * REGIONS

    def run(self) -> int:
        """See `recover`."""
        self._view[STEPS_AT : STEPS_AT + 4] = bytes(4)
        marked = self._mark()
        layout = self._layout
        end = layout.ghosts_at + 2 * len(self._states)
        self._view[layout.slots_at : end] = bytes(end - layout.slots_at)
        fields = (layout.regions_at + REGION_FIELDS) // 8
        regions = range(fields, fields + 16 * REGIONS, 16)
        self._serial = max(self._words[at] for at in regions)
        found = sum(self._walk(number) for number in range(layout.segments))
        _check(found == marked, "a slot points into a record")
        for number, at in enumerate(range(fields, fields + 16 * (REGIONS + 1), 16)):
            if number < REGIONS:
                self._words[at] = self._serial + 1
                self._words[at + 1] = self._items[number]
                self._words[at + 2] = self._bytes[number]
            self._words[at + 3] = 0
        flush_at = self._view[FLUSH_AT : FLUSH_AT + 8].cast("d")
        if flush_at[0]:
            flush_at[0] += self._shift
        return sum(self._items)

    def _mark(self) -> int:
        """Mark the records that slots point to, and store each one's state in place of its hash."""
        layout, narrow, memory = self._layout, self._narrow, self._memory
        wrong = "a slot does not point to a record"
        for at in range(0, _NARROW * layout.segments, _NARROW):
            state, used = narrow[at + 6], narrow[at + 8]
            _check(state <= EVICTING and used <= layout.segment_size and not used % 8, wrong)
        hashes = self._view[: layout.size & ~3].cast("I")
        marked = 0
        for slot, word in enumerate(self._slots):
            if word <= GONE:
                continue
            place = (word & PLACE) * 8
            number, offset = divmod(place - layout.segments_at, layout.segment_size)
            _check(0 <= number < layout.segments, wrong)
            _check(offset + RECORD_SIZE <= narrow[_NARROW * number + 8], wrong)
            _check(not memory[place + RECORD_SIZE - 1] & (LIVE | DEAD), wrong)
            memory[place + RECORD_SIZE - 1] |= LIVE
            hashes[place // 4 + 1] = self._states[slot]
            marked += 1
        return marked

    def _walk(self, number: int) -> int:
        """Enter the items of a segment; return how many records in it were marked."""
        layout, memory, narrow = self._layout, self._memory, self._narrow
        at = layout.segments_at + number * layout.segment_size
        end = at + narrow[_NARROW * number + 8]
        flushed = self._wide[_WIDE * number + 2] != self._words[EPOCH_AT // 8]
        marked = entered = latest = 0
        start = at
        while at < end:
            wrong = "a record exceeds its segment"
            _check(at + RECORD_SIZE <= end, wrong)
            record = RECORD.unpack_from(memory, at)
            place, at = at, at + record_size(record[0], record[5])
            _check(at <= end, wrong)
            memory[place + RECORD_SIZE - 1] = record[7] & ~LIVE | DEAD
            if record[7] & LIVE:
                marked += 1
                if self._enter(place, record, flushed=flushed):
                    entered += at - place
                    expiry = self._words[place // 8 + 2]
                    latest = max(latest, expiry or NEVER)
        self._wide[_WIDE * number + 5] = latest
        counters = [end - start - entered] + [0] * (COUNTERS - 1)
        for place, dead in enumerate(counters, _NARROW * number + 16):
            narrow[place] = dead
        narrow[_NARROW * number + 6] = SEALED if entered else FREE
        if not entered:
            narrow[_NARROW * number + 8] = 0
            self._wide[_WIDE * number] += 1
        return marked

    def _enter(
        self,
        place: int,
        record: tuple[int, int, int, float, int, int, int, int],
        *,
        flushed: bool,
    ) -> bool:
        """Give a record a slot if its item is still present; return whether it has one."""
        length, state, unique, expires, _, extra, size, kind = record
        kind &= ~(LIVE | DEAD)
        key = _key_of(self._memory, place + RECORD_SIZE, length, extra, size, kind)
        _check(0 <= expires <= _LATEST, "invalid expiry time")
        _check(unique // REGIONS <= self._serial, "a cas unique was never assigned")
        if expires:
            expires += self._shift
            self._view[place + 16 : place + 24].cast("d")[0] = expires
        if flushed or (expires and expires <= self._now):
            return False
        code = hash(b"get %b\r\n" % key) & 0xFFFFFFFFFFFFFFFF
        low = code & 0xFFFFFFFF
        slot = self._free_slot(low, key)
        region = low >> 24
        if slot < 0 or self._items[region] >= self._layout.slots * 7 // 8:
            return False
        second = min(max((state >> STATE_BITS) + self._later, 0), _MOST)
        self._view[place + 4 : place + 8].cast("I")[0] = low
        self._states[slot] = second << STATE_BITS | state & _FLAGS
        self._slots[slot] = place // 8 | code >> 50 << PLACE_BITS
        self._memory[place + RECORD_SIZE - 1] = kind
        self._items[region] += 1
        self._bytes[region] += record_size(length, extra)
        return True

    def _free_slot(self, low: int, key: bytes) -> int:
        count = self._layout.slots
        base, at = (low >> 24) * count, ((low << 8 & 0xFFFFFFFF) * count) >> 32
        for _ in range(count):
            word = self._slots[base + at]
            if word == EMPTY:
                return base + at
            place = (word & PLACE) * 8
            length, other, _, _, _, extra, size, kind = RECORD.unpack_from(self._memory, place)
            if other == low:
                there = _key_of(self._memory, place + RECORD_SIZE, length, extra, size, kind)
                _check(there != key, "two records have the same key")
            at = at + 1 if at + 1 < count else 0
        return -1


def _key_of(memory: mmap.mmap, begin: int, length: int, extra: int, size: int, kind: int) -> bytes:
    """Return the key of a record, which must be a well-formed reply to a get."""
    named = 0 if kind & UNNAMED else size
    end, numbers_at = begin + length, begin + 6 + named
    numbers = _NUMBERS.match(memory[numbers_at : min(end, numbers_at + 24)])
    whole = (
        not kind & ~(UNNAMED | META)
        and 0 < size <= _MAX_KEY_LENGTH
        and extra == (_META_SIZE if kind & META else 0) + (size if kind & UNNAMED else 0)
        and memory[begin : begin + 6] == b"VALUE "
        and numbers is not None
        and length == 6 + named + numbers.end() + int(numbers[2]) + len(_END)
        and memory[end - len(_END) : end] == _END
    )
    _check(whole, "a record is not an item")
    return memory[end : end + size] if kind & UNNAMED else memory[begin + 6 : begin + 6 + size]


def _check(right: bool, wrong: str) -> None:
    if not right:
        raise ValueError(wrong)
