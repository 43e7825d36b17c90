"""An endless stream of operations, each with the bytes of its request.

Kinds, keys and sizes are drawn in batches, which is cheap. Requests are built only when taken,
because a batch of large values would fill the memory.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from memlite.loadtest.dialects import Dialect
from memlite.loadtest.keys import key_chooser
from memlite.loadtest.lite import lite_set
from memlite.loadtest.requests import command_request, storage_request
from memlite.loadtest.resp import resp_get, resp_set
from memlite.loadtest.values import ValueSource
from memlite.loadtest.workload import OPERATIONS, Workload

__all__ = ["Follow", "Operation", "Operations"]

Follow = Callable[[int | None], bytes]
"""Builds the second step's request from the unique value in the first step's reply.

The unique value is None after a miss and after a get, which returns none. The second step always
has exactly one reply; it is never sent with noreply.
"""


class Operation(NamedTuple):
    """One operation.

    Attributes:
        request: a complete text-protocol request.
        kind: the name under which its latency is recorded.
        keys: number of keys requested, if the operation is or starts with a retrieval, else 0.
        replies: number of replies to `request`: 1, or 0 with noreply.
        follow: for rmw and cas, builds the second step.
    """

    request: bytes
    kind: str
    keys: int
    replies: int
    follow: Follow | None


# Arguments: the key's number, or a tuple of numbers for a multiget; and the value's size, or a
# scan's number of keys.
_Build = Callable[[Any, int], Operation]
_Drawn = tuple[_Build, int | tuple[int, ...], int]
_Numbers = npt.NDArray[np.int64]

# 0.17 µs instead of the 0.32 µs of Operation(…), out of 0.6 µs per operation in total.
_new: Final = tuple.__new__

# Operations drawn per batch. Many clients use smaller batches: an operation that has been drawn but
# not yet taken occupies about 100 bytes.
_MAX_BATCH: Final = 4096
_MIN_BATCH: Final = 64
_MAX_DRAWN_IN_TOTAL: Final = 1 << 18

_MAX_SCAN_KEYS: Final = 100

# This share of appends and prepends is sent as a set instead, so that items do not grow forever.
_RESET_SHARE: Final = 1 / 16
_RESET: Final = "reset"
_GROWING: Final = ("append", "prepend")
_COUNTING: Final = ("incr", "decr")
_SIZED: Final = frozenset(("set", "add", "replace", "insert", "cas", "rmw", _RESET, *_GROWING))
# Inserted between prefix and number to keep the keys of these operations separate from all others.
_COUNTER_MARK: Final = b"n"
_GROWING_MARK: Final = b"a"


class Operations(Iterator[Operation]):
    """The endless stream of operations of one client.

    The same workload, seed and client always give the same operations; different clients get
    different ones.

    - ``get`` and ``gets`` request `Load.multiget` keys.
    - ``incr`` and ``decr`` use separate keys with numeric values. ``append`` and ``prepend`` use
      separate keys too, and one in sixteen is sent (and recorded) as a ``set`` so that items do not
      grow without bound. Both draw these keys like other operations, from the initial keyspace.
    - ``insert`` sets key number count + client + n * clients the n-th time.
    - ``scan`` requests consecutive keys, wrapping around after the last: 1 to 100 of them, or
      exactly `Load.multiget` if that is more than 1.
    - The second step of ``cas`` is an ``add`` if the key was missing. Second steps never use
      ``noreply``.

    For a ``concurrent`` workload the stream alternates between a set and a get of the key with the
    client's number.

    Args:
        workload: a validated workload; its trace is ignored, see `Trace`.
        seed: the seed of all randomness, 0 or more.
        client: the client's number, from 0.
        clients: the number of clients.
        verify: whether values are generated so that `check` can check them.
        inserted: number of keys this client inserted in an earlier run; it does not repeat them.
        dialect: protocol of the requests; for any other than memcached's, the workload must contain
            only gets and sets of one key.

    Raises:
        ConfigError: the file of sizes cannot be read or is malformed.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        seed: int,
        client: int,
        clients: int,
        verify: bool = False,
        inserted: int = 0,
        dialect: Dialect = Dialect.MEMCACHED,
    ) -> None:
        self._workload = workload
        self._dialect = dialect
        self._seed = seed
        self._client = client
        self._clients = clients
        self._verify = verify
        self._values = ValueSource(workload.values)
        self._rng = np.random.default_rng((seed, client))
        self._chooser = key_chooser(workload.keys, client=client, clients=clients)
        self._chooser.note_inserted(inserted)
        self._inserted = inserted
        self._prefix = workload.keys.prefix.encode()
        self._multiget = workload.load.multiget if workload.kind == "steady" else 1
        # Unique among the writes of all clients.
        self._sequence = client
        self._drawn: Iterator[_Drawn] = iter(())
        share = _MAX_DRAWN_IN_TOTAL // clients // self._multiget
        self._batch_size = max(_MIN_BATCH, min(_MAX_BATCH, share))

        kinds, weights = _kinds_and_weights(workload)
        self.kinds = kinds
        self._weights = np.cumsum(weights) / sum(weights)
        builders = [self._builder(kind) for kind in kinds]
        self._builders = np.empty(len(builders), dtype=object)
        self._builders[:] = builders
        self._retrievals = np.array([kind in ("get", "gets") for kind in kinds])
        self._inserts = np.array([kind == "insert" for kind in kinds])
        self._scans = np.array([kind == "scan" for kind in kinds])
        self._any_sized = not _SIZED.isdisjoint(kinds)

    def __next__(self) -> Operation:
        return self.take(1)[0]

    def take(self, count: int) -> list[Operation]:
        """Return the next `count` operations."""
        taken = [build(number, extra) for build, number, extra in islice(self._drawn, count)]
        while len(taken) < count:
            self._drawn = iter(self._draw())
            missing = islice(self._drawn, count - len(taken))
            taken += [build(number, extra) for build, number, extra in missing]
        return taken

    def draw(self) -> tuple[npt.NDArray[np.intp], _Numbers]:
        """Return the next batch of operations of a plain workload, as two arrays.

        Returns:
            Indices into `kinds`, and key numbers; `build` turns them into operations.
        """
        kinds = self._draw_kinds()
        return kinds, self._choose(np.zeros(len(kinds), dtype=np.int64))

    def build(self, kind: int, number: int, size: int) -> Operation:
        """Build one operation.

        Args:
            kind: index into `kinds`.
            number: the key's number.
            size: the value's size in bytes.
        """
        built: Operation = self._builders[kind](number, size)
        return built

    def preload(self) -> Iterator[Operation]:
        """Yield sets for this client's share of the keys: numbers with number % clients == client.

        If the mix contains incr or decr, their counters are set too, and likewise the items of
        append and prepend. Every set has a reply.
        """
        mix = self._workload.mix
        counting = any(mix.get(kind) for kind in _COUNTING)
        growing = any(mix.get(kind) for kind in _GROWING)
        exptime = self._workload.ttl
        rng = np.random.default_rng((self._seed, self._client, 1))
        numbers = range(self._client, self._workload.keys.count, self._clients)
        for start in range(0, len(numbers), self._batch_size):
            chunk = numbers[start : start + self._batch_size]
            for number, size in zip(
                chunk, self._values.sizes(rng, len(chunk)).tolist(), strict=True
            ):
                values = {b"": self._content(number, size)}
                if counting:
                    values[_COUNTER_MARK] = b"0"
                if growing:
                    values[_GROWING_MARK] = self._content(number, size)
                for mark, value in values.items():
                    key = self._key(number, mark)
                    if self._dialect is Dialect.LITE:
                        request = lite_set(key, value)
                    elif self._dialect is Dialect.RESP:
                        request = resp_set(key, value)
                    else:
                        request = storage_request(b"set", key, value, exptime=exptime)
                    yield Operation(request, "set", 0, 1, None)

    @property
    def inserted(self) -> int:
        """The number of keys inserted by the operations taken so far, including earlier runs."""
        return self._inserted

    def check(self, key: bytes, value: bytes) -> bool:
        """Return whether a retrieved `value` was generated for `key`.

        Only meaningful with `verify`, and if nothing else writes keys with that prefix.
        """
        number = key[len(self._prefix) :]
        # An int64 has at most 19 digits.
        if not key.startswith(self._prefix) or not number.isdigit() or len(number) > 19:
            return False
        return self._values.check(int(number), value)

    # Drawing

    def _draw(self) -> Iterable[_Drawn]:
        """Return a batch of operations: builder, key number or numbers, and size or scan length."""
        if self._workload.kind == "concurrent":
            size = int(self._values.sizes(self._rng, 1)[0])
            return [(build, self._client, size) for build in self._builders]
        kinds = self._draw_kinds()
        return zip(
            self._builders[kinds].tolist(),
            self._draw_numbers(kinds),
            self._draw_sizes(kinds),
            strict=False,  # a fixed size is repeated endlessly
        )

    def _draw_kinds(self) -> npt.NDArray[np.intp]:
        # Rounding may leave the last sum slightly below 1, and a draw may fall in between.
        drawn = self._weights.searchsorted(self._rng.random(self._batch_size), side="right")
        return np.minimum(drawn, len(self._weights) - 1)

    def _draw_numbers(self, kinds: npt.NDArray[np.intp]) -> list[int] | list[int | tuple[int, ...]]:
        """Return each operation's key number, or for a multiget a tuple of numbers."""
        inserts = self._inserts[kinds]
        inserted_before = np.cumsum(inserts) - inserts
        if self._multiget == 1:
            numbers: list[int] | list[int | tuple[int, ...]] = self._choose(
                inserted_before
            ).tolist()
        else:
            retrievals = self._retrievals[kinds]
            repeated = np.repeat(inserted_before, np.where(retrievals, self._multiget, 1))
            flat: Iterator[int] = iter(self._choose(repeated).tolist())
            numbers = [
                tuple(islice(flat, self._multiget)) if retrieval else next(flat)
                for retrieval in retrievals.tolist()
            ]
        # The chooser runs ahead of `_inserted`, which counts only the operations taken.
        self._chooser.note_inserted(int(inserts.sum()))
        return numbers

    def _choose(self, inserted_before: _Numbers) -> _Numbers:
        return self._chooser.choose(self._rng, len(inserted_before), inserted_before)

    def _draw_sizes(self, kinds: npt.NDArray[np.intp]) -> Iterable[int]:
        """Return each operation's value size, or for a scan its number of keys."""
        fixed = self._values.fixed
        scans = self._scans[kinds]
        if fixed is not None and not scans.any():
            return repeat(fixed)
        if self._any_sized:
            sizes = self._values.sizes(self._rng, len(kinds))
        else:
            sizes = np.zeros(len(kinds), dtype=np.int64)
        if scans.any():
            lengths = self._rng.integers(1, _MAX_SCAN_KEYS, len(kinds), endpoint=True)
            if self._multiget > 1:
                lengths[:] = self._multiget
            sizes = np.where(scans, np.minimum(lengths, self._workload.keys.count), sizes)
        sized: list[int] = sizes.tolist()
        return sized

    # Building: each method returns the builder of one kind of operation.

    def _builder(self, kind: str) -> _Build:
        if self._dialect is Dialect.RESP:
            return self._in_resp(kind)
        if kind in ("get", "gets"):
            return self._retrieval(kind) if self._multiget == 1 else self._multiget_retrieval(kind)
        if kind in ("set", "add", "replace"):
            return self._storage(kind, kind, b"")
        if kind == _RESET:
            return self._storage("set", "set", _GROWING_MARK)
        if kind in _GROWING:
            return self._storage(kind, kind, _GROWING_MARK)
        if kind == "insert":
            return self._insert()
        if kind == "scan":
            return self._scan()
        if kind == "cas":
            return self._two_steps(b"gets", "cas", self._compare_and_set)
        if kind == "rmw":
            return self._two_steps(b"get", "rmw", self._set_after_get)
        if kind in _COUNTING:
            return self._command(kind, b" 1", _COUNTER_MARK)
        if kind == "touch":
            return self._command(kind, b" %d" % self._workload.ttl, b"")
        return self._command(kind, b"", b"")

    def _in_resp(self, kind: str) -> _Build:
        def read(number: int, size: int) -> Operation:
            return _new(Operation, (resp_get(self._key(number)), kind, 1, 1, None))

        def store(number: int, size: int) -> Operation:
            request = resp_set(self._key(number), self._content(number, size))
            return _new(Operation, (request, kind, 0, 1, None))

        return read if kind == "get" else store

    def _retrieval(self, kind: str) -> _Build:
        line = b"%b%b\r\n" % (kind.encode(), self._key_format())

        def build(number: int, extra: int) -> Operation:
            return _new(Operation, (line % number, kind, 1, 1, None))

        return build

    def _multiget_retrieval(self, kind: str) -> _Build:
        keys = self._multiget
        line = b"%b%b\r\n" % (kind.encode(), self._key_format() * keys)

        def build(numbers: tuple[int, ...], extra: int) -> Operation:
            return _new(Operation, (line % numbers, kind, keys, 1, None))

        return build

    def _scan(self) -> _Build:
        key = self._key_format()
        count = self._workload.keys.count

        def build(number: int, length: int) -> Operation:
            numbers = tuple(following % count for following in range(number, number + length))
            request = b"get" + key * length % numbers + b"\r\n"
            return _new(Operation, (request, "scan", length, 1, None))

        return build

    def _storage(self, command: str, kind: str, mark: bytes) -> _Build:
        end, replies = self._line_end()
        key = self._key_format(mark)
        if self._dialect is Dialect.LITE:
            line = b"set%b %%d\r\n" % key
        else:
            line = b"%b%b 0 %d %%d%b\r\n" % (command.encode(), key, self._workload.ttl, end)
        line += b"%b\r\n"
        content = self._content
        # Separate keys exist only for the initial keyspace; inserts add none.
        count = self._workload.keys.count if mark else 0

        def build(number: int, size: int) -> Operation:
            if count:
                number %= count
            request = line % (number, size, content(number, size))
            return _new(Operation, (request, kind, 0, replies, None))

        return build

    def _insert(self) -> _Build:
        build_set = self._storage("set", "insert", b"")
        first = self._workload.keys.count + self._client

        def build(number: int, size: int) -> Operation:
            number = first + self._inserted * self._clients
            self._inserted += 1
            return build_set(number, size)

        return build

    def _command(self, command: str, argument: bytes, mark: bytes) -> _Build:
        end, replies = self._line_end()
        key = self._key_format(mark)
        line = b"%b%b%b%b\r\n" % (command.encode(), key, argument, end)
        count = self._workload.keys.count if mark else 0

        def build(number: int, extra: int) -> Operation:
            if count:
                number %= count
            return _new(Operation, (line % number, command, 0, replies, None))

        return build

    def _two_steps(
        self, command: bytes, kind: str, second: Callable[[int, int, int | None], bytes]
    ) -> _Build:
        def build(number: int, size: int) -> Operation:
            request = command_request([command, self._key(number)])
            return _new(Operation, (request, kind, 1, 1, partial(second, number, size)))

        return build

    def _compare_and_set(self, number: int, size: int, unique: int | None) -> bytes:
        return storage_request(
            b"add" if unique is None else b"cas",
            self._key(number),
            self._content(number, size),
            exptime=self._workload.ttl,
            unique=unique,
        )

    def _set_after_get(self, number: int, size: int, unique: int | None) -> bytes:
        value = self._content(number, size)
        return storage_request(b"set", self._key(number), value, exptime=self._workload.ttl)

    def _content(self, number: int, size: int) -> bytes:
        if not self._verify:
            return self._values.filler(size)
        self._sequence += self._clients
        return self._values.make(number, self._sequence, size)

    def _key(self, number: int, mark: bytes = b"") -> bytes:
        return b"%b%b%d" % (self._prefix, mark, number)

    def _key_format(self, mark: bytes = b"") -> bytes:
        """Return a space followed by the key, with a placeholder for its number."""
        return b" %b%b%%d" % (self._prefix.replace(b"%", b"%%"), mark)

    def _line_end(self) -> tuple[bytes, int]:
        """Return the end of a write's command line, and its number of replies."""
        return (b" noreply", 0) if self._workload.load.noreply else (b"", 1)


def _kinds_and_weights(workload: Workload) -> tuple[list[str], list[float]]:
    """Return the kinds to draw from and their weights, in the order of `OPERATIONS`."""
    if workload.kind == "concurrent":
        return ["set", "get"], [1.0, 1.0]
    kinds, weights = [], []
    for kind in OPERATIONS:
        weight = workload.mix.get(kind, 0.0)
        if not weight:
            continue
        if kind in _GROWING:
            kinds.append(_RESET)
            weights.append(weight * _RESET_SHARE)
            weight *= 1 - _RESET_SHARE
        kinds.append(kind)
        weights.append(weight)
    return kinds, weights
