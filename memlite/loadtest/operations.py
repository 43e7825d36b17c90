"""What one connection sends: an endless stream of operations, each with its request's bytes.

Kinds, keys and sizes are drawn many at once, which costs little for each; requests are built when
they are taken, as those of large values would fill the memory.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from memlite.loadtest.keys import key_chooser
from memlite.loadtest.lite import lite_set
from memlite.loadtest.requests import plain, storage
from memlite.loadtest.values import ValueSource
from memlite.loadtest.workload import OPERATIONS, Workload

__all__ = ["Follow", "Operation", "Operations"]

Follow = Callable[[int | None], bytes]
"""Takes the unique that a first step's reply brought, None for a miss, or for a get, which brings
none; returns the second step's request, which brings one reply, never noreply."""


class Operation(NamedTuple):
    """One operation.

    Attributes:
        request: a complete request of the text protocol.
        kind: what its latency is recorded as.
        keys: asked for, if it is a retrieval or begins with one, else 0.
        replies: that `request` brings: 1, or 0 with noreply.
        follow: of rmw and cas the second step.
    """

    request: bytes
    kind: str
    keys: int
    replies: int
    follow: Follow | None


# Takes the key's number, or a tuple of several where several are asked for, and the value's size or
# how many keys a scan asks for.
_Build = Callable[[Any, int], Operation]
_Drawn = tuple[_Build, int | tuple[int, ...], int]
_Numbers = npt.NDArray[np.int64]

# Operation(…) takes 0.32 µs, this 0.17, of 0.6 for an operation in all.
_new: Final = tuple.__new__

# Operations drawn at once. Fewer where there are many clients: each operation drawn and not yet
# taken takes some 100 bytes.
_CHUNK: Final = 4096
_CHUNK_LEAST: Final = 64
_CHUNK_OF_ALL: Final = 1 << 18

_SCAN_MOST: Final = 100

# One in so many appends and prepends is sent as a set instead, so that items do not grow for ever.
_RESET_SHARE: Final = 1 / 16
_RESET: Final = "reset"
_GROWING: Final = ("append", "prepend")
_COUNTING: Final = ("incr", "decr")
_SIZED: Final = frozenset(("set", "add", "replace", "insert", "cas", "rmw", _RESET, *_GROWING))
# What own keys of such operations have between prefix and number: no other key looks like that.
_COUNTER_MARK: Final = b"n"
_GROWING_MARK: Final = b"a"


class Operations(Iterator[Operation]):
    """The operations of one client of a workload, without end.

    The same workload, seed and client give the same operations; other clients get others.

    ``incr`` and ``decr`` use keys of their own, whose values are numbers; so do ``append`` and
    ``prepend``, of which one in sixteen is a ``set`` instead, recorded as such, so that items do
    not grow without bound. Both choose them as other operations do, among the keys there were at
    first. ``insert`` sets the number count + client + n * clients the n-th time. ``scan`` asks for
    keys that follow each other, from 1 to 100 or, where `Load.multiget` is more than 1, that many;
    behind the last comes the first. ``get`` and ``gets`` ask for `Load.multiget` keys. The second
    step of ``cas`` is an ``add`` where the key was not there. Second steps are never ``noreply``.

    Of a ``concurrent`` workload it is a set and a get, in turn, of the key with the client's
    number.

    Args:
        workload: a valid one; its trace is `Trace`'s business.
        seed: of all that is random, from 0 on.
        client: its number, from 0.
        clients: how many there are.
        verify: whether values are made so that `check` can check them.
        inserted: keys that this client inserted in an earlier run, which are not inserted again.
        lite: whether requests are the lite dialect's, of a workload that has no others.

    Raises:
        ConfigError: the file of sizes cannot be read, or is wrong.
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
        lite: bool = False,
    ) -> None:
        self._workload = workload
        self._lite = lite
        self._seed = seed
        self._client = client
        self._clients = clients
        self._verify = verify
        self._values = ValueSource(workload.values)
        self._rng = np.random.default_rng((seed, client))
        self._chooser = key_chooser(workload.keys, client=client, clients=clients)
        self._chooser.inserted(inserted)
        self._inserted = inserted
        self._prefix = workload.keys.prefix.encode()
        self._multiget = workload.load.multiget if workload.kind == "steady" else 1
        # Unique among all clients' writes.
        self._sequence = client
        self._drawn: Iterator[_Drawn] = iter(())
        share = _CHUNK_OF_ALL // clients // self._multiget
        self._chunk = max(_CHUNK_LEAST, min(_CHUNK, share))

        kinds, weights = _split(workload)
        self.kinds = kinds
        self._weights = np.cumsum(weights) / sum(weights)
        builders = [self._builder(kind) for kind in kinds]
        self._builders = np.empty(len(builders), dtype=object)
        self._builders[:] = builders
        self._wide = np.array([kind in ("get", "gets") for kind in kinds])
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
        """Return the next operations of a plain workload, some thousands, in two columns.

        Returns:
            Positions in `kinds`, and the numbers of the keys; `build` makes requests of them.
        """
        kinds = self._draw_kinds()
        return kinds, self._choose(np.zeros(len(kinds), dtype=np.int64))

    def build(self, kind: int, number: int, size: int) -> Operation:
        """Return an operation.

        Args:
            kind: its position in `kinds`.
            number: the key's.
            size: the value's, in bytes.
        """
        built: Operation = self._builders[kind](number, size)
        return built

    def preload(self) -> Iterator[Operation]:
        """Yield sets of this client's share of the keys: those with number % clients == client.

        With incr or decr in the mix there are sets of numbers as well, with append or prepend of
        what they add to. All bring a reply.
        """
        mix = self._workload.mix
        counting = any(mix.get(kind) for kind in _COUNTING)
        growing = any(mix.get(kind) for kind in _GROWING)
        exptime = self._workload.ttl
        rng = np.random.default_rng((self._seed, self._client, 1))
        numbers = range(self._client, self._workload.keys.count, self._clients)
        for start in range(0, len(numbers), self._chunk):
            chunk = numbers[start : start + self._chunk]
            for number, size in zip(
                chunk, self._values.sizes(rng, len(chunk)).tolist(), strict=True
            ):
                own = {b"": self._content(number, size)}
                if counting:
                    own[_COUNTER_MARK] = b"0"
                if growing:
                    own[_GROWING_MARK] = self._content(number, size)
                for mark, value in own.items():
                    key = self._key(number, mark)
                    if self._lite:
                        request = lite_set(key, value)
                    else:
                        request = storage(b"set", key, value, exptime=exptime)
                    yield Operation(request, "set", 0, 1, None)

    @property
    def inserted(self) -> int:
        """How many keys the operations taken so far insert, with those of earlier runs."""
        return self._inserted

    def check(self, key: bytes, value: bytes) -> bool:
        """Return whether `value`, which a retrieval brought, is one that was made for `key`.

        Only of use with `verify`, and if nothing else writes keys with that prefix.
        """
        number = key[len(self._prefix) :]
        # 19 digits are all of an int64's.
        if not key.startswith(self._prefix) or not number.isdigit() or len(number) > 19:
            return False
        return self._values.check(int(number), value)

    # Drawing

    def _draw(self) -> Iterable[_Drawn]:
        """Return the next operations: what builds each, its key or keys, and its size or length."""
        if self._workload.kind == "concurrent":
            size = int(self._values.sizes(self._rng, 1)[0])
            return [(build, self._client, size) for build in self._builders]
        kinds = self._draw_kinds()
        return zip(
            self._builders[kinds].tolist(),
            self._draw_numbers(kinds),
            self._draw_extras(kinds),
            strict=False,  # what all have in common is repeated without end
        )

    def _draw_kinds(self) -> npt.NDArray[np.intp]:
        # The last sum may be less than 1 by rounding, and a draw between the two.
        drawn = self._weights.searchsorted(self._rng.random(self._chunk), side="right")
        return np.minimum(drawn, len(self._weights) - 1)

    def _draw_numbers(self, kinds: npt.NDArray[np.intp]) -> list[int] | list[int | tuple[int, ...]]:
        """Return the key number of each operation; of those that ask for several, all of them."""
        inserts = self._inserts[kinds]
        before = np.cumsum(inserts) - inserts
        if self._multiget == 1:
            numbers: list[int] | list[int | tuple[int, ...]] = self._choose(before).tolist()
        else:
            wide = self._wide[kinds]
            asked = np.repeat(before, np.where(wide, self._multiget, 1))
            flat: Iterator[int] = iter(self._choose(asked).tolist())
            numbers = [
                tuple(islice(flat, self._multiget)) if several else next(flat)
                for several in wide.tolist()
            ]
        # Ahead of `_inserted`, which counts what is taken.
        self._chooser.inserted(int(inserts.sum()))
        return numbers

    def _choose(self, before: _Numbers) -> _Numbers:
        return self._chooser.choose(self._rng, len(before), before)

    def _draw_extras(self, kinds: npt.NDArray[np.intp]) -> Iterable[int]:
        """Return the size of each operation's value; of scans how many keys they ask for."""
        fixed = self._values.fixed
        scans = self._scans[kinds]
        if fixed is not None and not scans.any():
            return repeat(fixed)
        if self._any_sized:
            extras = self._values.sizes(self._rng, len(kinds))
        else:
            extras = np.zeros(len(kinds), dtype=np.int64)
        if scans.any():
            lengths = self._rng.integers(1, _SCAN_MOST, len(kinds), endpoint=True)
            if self._multiget > 1:
                lengths[:] = self._multiget
            extras = np.where(scans, np.minimum(lengths, self._workload.keys.count), extras)
        sized: list[int] = extras.tolist()
        return sized

    # Building: each method returns what builds one kind of operation.

    def _builder(self, kind: str) -> _Build:
        if kind in ("get", "gets"):
            return self._retrieval(kind) if self._multiget == 1 else self._wide_retrieval(kind)
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
            return self._two_steps(b"get", "rmw", self._set_anyway)
        if kind in _COUNTING:
            return self._change(kind, b" 1", _COUNTER_MARK)
        if kind == "touch":
            return self._change(kind, b" %d" % self._workload.ttl, b"")
        return self._change(kind, b"", b"")

    def _retrieval(self, kind: str) -> _Build:
        line = b"%b%b\r\n" % (kind.encode(), self._key_format())

        def build(number: int, extra: int) -> Operation:
            return _new(Operation, (line % number, kind, 1, 1, None))

        return build

    def _wide_retrieval(self, kind: str) -> _Build:
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
        end, replies = self._ending()
        key = self._key_format(mark)
        if self._lite:
            line = b"set%b %%d\r\n" % key
        else:
            line = b"%b%b 0 %d %%d%b\r\n" % (command.encode(), key, self._workload.ttl, end)
        line += b"%b\r\n"
        content = self._content
        # Own keys are those there were at first; others may have been inserted.
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

    def _change(self, command: str, argument: bytes, mark: bytes) -> _Build:
        end, replies = self._ending()
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
            request = plain([command, self._key(number)])
            return _new(Operation, (request, kind, 1, 1, partial(second, number, size)))

        return build

    def _compare_and_set(self, number: int, size: int, unique: int | None) -> bytes:
        return storage(
            b"add" if unique is None else b"cas",
            self._key(number),
            self._content(number, size),
            exptime=self._workload.ttl,
            unique=unique,
        )

    def _set_anyway(self, number: int, size: int, unique: int | None) -> bytes:
        value = self._content(number, size)
        return storage(b"set", self._key(number), value, exptime=self._workload.ttl)

    def _content(self, number: int, size: int) -> bytes:
        if not self._verify:
            return self._values.plain(size)
        self._sequence += self._clients
        return self._values.make(number, self._sequence, size)

    def _key(self, number: int, mark: bytes = b"") -> bytes:
        return b"%b%b%d" % (self._prefix, mark, number)

    def _key_format(self, mark: bytes = b"") -> bytes:
        """Return a space and the key, its number to be filled in."""
        return b" %b%b%%d" % (self._prefix.replace(b"%", b"%%"), mark)

    def _ending(self) -> tuple[bytes, int]:
        """Return what ends the line of a change, and how many replies it brings."""
        return (b" noreply", 0) if self._workload.load.noreply else (b"", 1)


def _split(workload: Workload) -> tuple[list[str], list[float]]:
    """Return what operations are drawn from and their weights, in the order of `OPERATIONS`."""
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
