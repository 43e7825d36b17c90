"""The mapping of a shared table: made once, before the processes that share it are forked."""

import functools
import mmap
import os
import time
import weakref
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, Protocol

from memlite.core.build import extension
from memlite.core.errors import StartError
from memlite.memory.shared import restart_file
from memlite.memory.shared.layout import (
    FLUSH_AT,
    GONE,
    PARKED,
    PARKED_AT,
    PLACE,
    RECORD,
    RECORD_SIZE,
    REGION_FIELDS,
    REGIONS,
    SEGMENT_HEADER,
    UNNAMED,
    VERSION,
    Layout,
    record_size,
)
from memlite.memory.shared.python_table import PureTable, Stored

__all__ = ["Mapping", "SharedTable", "native"]

_REGION: Final = 128 // 8
_PARKED: Final = PARKED_AT // 8
_TO_PARK: Final = _PARKED + 1
_LIMIT: Final = _PARKED + 2
_STATE: Final = 6
_KEY_AT: Final = len(b"VALUE ")
_EMPTY_SLOTS: Final = bytes(8 * 512)


class SharedTable(Protocol):
    """The common interface of `PureTable` and the table in C; `PureTable` documents it."""

    second: int
    offset: float
    evicted: list[bytes] | None
    evicts: int

    @property
    def evictions(self) -> int: ...  # noqa: D102
    @property
    def evicted_unfetched(self) -> int: ...  # noqa: D102
    @property
    def reclaimed(self) -> int: ...  # noqa: D102
    @property
    def expired_unfetched(self) -> int: ...  # noqa: D102
    @property
    def reinserted(self) -> int: ...  # noqa: D102
    @property
    def met(self) -> int: ...  # noqa: D102
    def find(self, line: bytes, /) -> bytes | None: ...  # noqa: D102
    def get(self, line: bytes, /) -> Stored | None: ...  # noqa: D102
    def store(  # noqa: D102
        self, line: bytes, reply: bytes, expires: float, condition: int | None, kind: int,
        extra: bytes, /,
    ) -> int: ...  # fmt: skip
    def delete(self, line: bytes, condition: int | None, /) -> bool: ...  # noqa: D102
    def touch(self, line: bytes, expires: float, /) -> bool: ...  # noqa: D102
    def hold(self, line: bytes, size: int, /) -> None: ...  # noqa: D102
    def release(self) -> None: ...  # noqa: D102
    def flush(self, at: float, /) -> None: ...  # noqa: D102
    def drop_flushed(self, line: bytes, /) -> bool: ...  # noqa: D102
    def init_locks(self) -> None: ...  # noqa: D102
    def recover(self, now: float, shift: float, later: int, /) -> int: ...  # noqa: D102
    def attach(self, worker: int, /) -> None: ...  # noqa: D102
    def park(self) -> int: ...  # noqa: D102
    def unpark(self, number: int, /) -> None: ...  # noqa: D102


@functools.cache
def native() -> Any:
    """Return the module of the table in C; None if not compiled, or compiled for another layout."""
    return extension("memlite.memory.shared._native", VERSION)


class Mapping:
    """A shared table, with the operations on the table as a whole.

    Args:
        size: bytes of memory (``-m``), for everything.
        item_size: bytes of the largest item (``-I``).
        workers: how many processes will write.
        compiled: whether to use the table in C; None: if there is one.
        file: the file that keeps the table; none by default.
        now: the unix time; by default, the system's.

    Attributes:
        layout: the layout.
        table: the items.
        kept: how many items the file had kept; None if its content was not used, or it was new.
        refused: why the file's content was not used; empty if it was, or there was none.
        kept_in: the file that keeps the table, or None.
        origin: the unix second from which uses are counted.

    Raises:
        ConfigError: the memory is too small for that.
        StartError: the system has too little memory.
    """

    def __init__(
        self, size: int, item_size: int, workers: int, *, compiled: bool | None = None,
        file: restart_file.MemoryFile | None = None, now: float | None = None,
    ) -> None:  # fmt: skip
        self.layout = Layout.of(size, item_size, workers)
        self.kept: int | None = None
        self.refused = ""
        self._module = native() if compiled is not False else None
        if compiled and self._module is None:
            raise StartError("the C extension of the table is not available")
        self.kept_in = file
        self._workers = workers
        self._map(size, file)
        self._make_table(file, time.time() if now is None else now)
        self.table.init_locks()

    def _map(self, size: int, file: restart_file.MemoryFile | None) -> None:
        """Map the memory, which is all zeros or has the table that the file kept."""
        try:
            if file is None:
                self._file = os.memfd_create("memlite")
                os.posix_fallocate(self._file, 0, size)  # now, instead of SIGBUS later
            else:
                self._file = file.descriptor
                refusal = file.refusal(self.layout)
                self.refused = refusal or ""
                file.reserve(size, clear=refusal is not None)
            self._memory = mmap.mmap(self._file, size)
            if file is None:
                # Tables use it as well, and may outlive the mapping.
                weakref.finalize(self._memory, os.close, self._file).atexit = False
        except OSError as error:
            where = "-m" if file is None else f"-e: {file.path}"
            raise StartError(f"{where}: cannot map {size} bytes: {error.strerror}") from None
        self._view = memoryview(self._memory)
        self._words = self._view[: size & ~7].cast("Q")

    def _make_table(self, file: restart_file.MemoryFile | None, now: float) -> None:
        """Make the table, from the file's content or empty."""
        if self._view[0]:
            try:
                shift, later = restart_file.reopen(self._memory, self.layout, now)
                self.table = self._attach()
                self.kept = self.table.recover(now, shift, later)
            except ValueError as error:
                self.refused = str(error)
        if self.kept is None:
            if self.refused and file is not None:
                file.reserve(self.layout.size, clear=True)
            self.layout.write(self._view)
            restart_file.begin(self._view, now)
            self.table = self._attach()
        self.origin = restart_file.origin_of(self._view)

    def _attach(self) -> SharedTable:
        if self._module is None:
            return PureTable(self._memory, self._file)
        table: SharedTable = self._module.Table(self._memory)
        return table

    def close(self, now: float) -> None:
        """Keep the table in its file, when no process writes any more.

        Args:
            now: the unix time by the server's clock.
        """
        self.table.attach(0)  # completes what a killed process had begun
        restart_file.close(self._memory, self.layout, now, time.time())

    def attach(self, *, compiled: bool = False) -> SharedTable:
        """Return another table on the same mapping."""
        return native().Table(self._memory) if compiled else PureTable(self._memory, self._file)

    def __len__(self) -> int:
        return self._sum(1)

    def __bool__(self) -> bool:
        """Return True, even if it is empty."""
        return True

    @property
    def limit(self) -> int:
        """Bytes that it may take in total."""
        return self._words[_LIMIT] or self.layout.size

    @property
    def over(self) -> bool:
        """Whether it takes more than the limit; `settle` gives the excess back."""
        return self._words[_PARKED] < self._words[_TO_PARK]

    def resize(self, limit: int) -> bool:
        """Set the limit; `settle` then enforces it.

        Args:
            limit: bytes, at most the size that the mapping was made with.

        Returns:
            Whether that is possible: a file has a fixed size, workers need room, and memory may be
            short.
        """
        layout = self.layout
        surplus = -(-(layout.size - limit) // layout.segment_size)
        if limit == self.limit and self._words[_PARKED] <= self._words[_TO_PARK]:
            return True  # not if the process that raised it was killed midway
        most = layout.segments - self._workers - 3
        if self.kept_in is not None or limit > layout.size or surplus > most:
            return False
        self._words[_TO_PARK] = surplus
        self._words[_LIMIT] = limit
        states = self._view[layout.headers_at : layout.segments_at].cast("I")
        for number in range(layout.segments):
            if self._words[_PARKED] <= surplus:
                break
            if states[SEGMENT_HEADER // 4 * number + _STATE] == PARKED:
                try:
                    os.posix_fallocate(self._file, self._at(number), layout.segment_size)
                except OSError:
                    self._words[_TO_PARK] = parked = self._words[_PARKED]
                    self._words[_LIMIT] = layout.size - parked * layout.segment_size
                    return False
                self.table.unpark(number)
        return True

    def settle(self) -> bool:
        """Give back the memory of one segment if over the limit; return whether it did."""
        return self.over and self.table.park() >= 0

    def _at(self, segment: int) -> int:
        return self.layout.segments_at + segment * self.layout.segment_size

    @property
    def used(self) -> int:
        """Bytes of the records of all items."""
        return self._sum(2)

    def _sum(self, field: int) -> int:
        first = (self.layout.regions_at + REGION_FIELDS) // 8 + field
        return sum(self._words[first : first + REGIONS * _REGION : _REGION])

    @property
    def flush_at(self) -> float:
        """The unix time of a delayed flush, 0 if there is none."""
        at: float = self._view[FLUSH_AT : FLUSH_AT + 8].cast("d")[0]
        return at

    def list_keys(self) -> Iterator[bytes]:
        """Yield the keys of items, flushed ones included; others may be stored meanwhile."""
        return chain.from_iterable(self.key_batches())

    def key_batches(self) -> Iterator[list[bytes]]:
        """Yield these keys in batches of a few hundred; many batches may be empty."""
        layout, memory = self.layout, self._memory
        end = layout.slots_at + 8 * layout.slots * REGIONS
        for at in range(layout.slots_at, end, len(_EMPTY_SLOTS)):
            slots = memory[at : min(at + len(_EMPTY_SLOTS), end)]
            if slots == _EMPTY_SLOTS:  # examining each slot would take a hundred times as long
                yield []
            else:
                words = memoryview(slots).cast("Q").tolist()
                keys = (self._key_in(at // 8 + i) for i, word in enumerate(words) if word > GONE)
                yield [key for key in keys if key is not None]

    def _key_in(self, slot: int) -> bytes | None:
        """Return the key of the item that a slot now points to; None if there is none.

        Its segment may be reused meanwhile, which its generation shows.
        """
        words, layout = self._words, self.layout
        while (word := words[slot]) > GONE:
            place = (word & PLACE) * 8
            segment = (place - layout.segments_at) // layout.segment_size
            gen = (layout.headers_at + SEGMENT_HEADER * segment) // 8
            before = words[gen]
            if words[slot] == word:
                key = self._key_at(place)
                if words[gen] == before:
                    return key
        return None

    def _key_at(self, place: int) -> bytes:
        length, _, _, _, _, _, size, kind = RECORD.unpack_from(self._memory, place)
        begin = place + RECORD_SIZE + (length if kind & UNNAMED else _KEY_AT)
        return self._memory[begin : begin + size]

    def verify(self) -> None:
        """Check that the table is consistent, while no process writes.

        Raises:
            AssertionError: it is not.
        """
        layout, items, used = self.layout, [0] * REGIONS, [0] * REGIONS
        first = layout.slots_at // 8
        slots = self._words[first : first + layout.slots * REGIONS].tolist()
        for at, word in [(at, word) for at, word in enumerate(slots) if word > GONE]:
            place = (word & PLACE) * 8
            length, low, _, _, _, extra, key, kind = RECORD.unpack_from(self._memory, place)
            region = at // layout.slots
            assert low >> 24 == region, "a slot is in its region"  # noqa: S101
            begin = place + RECORD_SIZE
            reply = self._memory[begin : begin + length]
            name = self._memory[begin + length : begin + length + key] if kind & UNNAMED else (
                reply[_KEY_AT : _KEY_AT + key]
            )  # fmt: skip
            line = b"get %b\r\n" % name
            assert hash(line) & 0xFFFFFFFF == low, "a record is what its hash says"  # noqa: S101
            items[region] += 1
            used[region] += record_size(length, extra)
        fields = (layout.regions_at + REGION_FIELDS) // 8
        counted = [
            tuple(self._words[fields + _REGION * one + 1 : fields + _REGION * one + 3])
            for one in range(REGIONS)
        ]
        assert counted == list(zip(items, used, strict=True)), "regions are counted"  # noqa: S101
