"""Replay of a trace: what was once asked for, read from a CSV file line by line."""

import csv
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from zlib import crc32

from memlite.errors import ConfigError
from memlite.loadtest.operations import Operation
from memlite.loadtest.requests import plain, storage
from memlite.loadtest.values import ValueSource
from memlite.loadtest.workload import LARGEST_VALUE, Values, Workload

__all__ = ["COLUMNS", "TRACE_OPERATIONS", "Trace"]

COLUMNS = ("time", "operation", "key", "size")
"""The first line of a trace, separated by commas."""

_STORAGE = ("set", "add", "replace", "append", "prepend")
_TWO_STEPS = ("cas", "rmw")

TRACE_OPERATIONS = (
    "get",
    "gets",
    *_STORAGE,
    *_TWO_STEPS,
    "delete",
    "incr",
    "decr",
    "touch",
)
"""What a trace may hold."""

_KEY_LENGTH = 250  # memcached's


class Trace:
    """A trace.

    A CSV file with the columns `COLUMNS`, named in the first line: seconds since any beginning,
    never fewer than in a line before, or empty for at once; one of `TRACE_OPERATIONS`; a key
    without spaces and control characters; the value's size in bytes, which may be empty where
    nothing is stored. ``incr`` and ``decr`` are by 1.

    Args:
        workload: names the file, and says with what exptime and whether with ``noreply`` changes
            are sent.
        verify: whether values are made so that `check` can check them.

    Raises:
        ConfigError: the file cannot be read, or its first line is wrong.
    """

    def __init__(self, workload: Workload, *, verify: bool = False) -> None:
        self._path = workload.trace
        self._exptime = workload.ttl
        self._noreply = workload.load.noreply
        self._verify = verify
        self._values = ValueSource(Values(distribution="uniform", least=0, most=LARGEST_VALUE))
        next(self._rows(), None)

    def operations(self, client: int, clients: int) -> Iterator[tuple[float | None, Operation]]:
        """Yield the operations of a client, each with its time, None for at once.

        All operations on a key are the same client's, in order. The whole file is read on the way,
        so few clients which share out what they get among connections are better than many.

        Args:
            client: its number, from 0.
            clients: how many there are.

        Raises:
            ConfigError: the file cannot be read, or a line is wrong; the text names it.
        """
        last = 0.0
        sequence = client
        for line, row in self._rows():
            if len(row) != len(COLUMNS):
                raise self._error(line, f"has {len(row)} columns, not {len(COLUMNS)}")
            time, operation, text, size = row
            key = text.encode()
            number = crc32(key)
            if number % clients != client:
                continue
            due = None
            if time:
                due = last = self._time(line, time, last)
            self._check_key(line, text, key)
            sequence += clients
            yield due, self._operation(line, operation, key, size, (number, sequence))

    def check(self, key: bytes, value: bytes) -> bool:
        """Return whether `value`, which a retrieval brought, is one that was made for `key`.

        Only of use with `verify`, and if nothing but set, add, replace, cas and rmw writes keys.
        """
        return self._values.check(crc32(key), value)

    def _operation(
        self, line: int, name: str, key: bytes, size: str, write: tuple[int, int]
    ) -> Operation:
        """Return a line's operation.

        Args:
            line: its number.
            name: what it does.
            key: to which item.
            size: as it stands in the line.
            write: what a value is made from: the key's number and the write's.
        """
        command = name.encode()
        replies = 0 if self._noreply else 1
        if name in ("get", "gets"):
            return Operation(plain([command, key]), name, 1, 1, None)
        if name in _STORAGE:
            value = self._value(self._size(line, size), *write)
            request = storage(command, key, value, exptime=self._exptime, noreply=self._noreply)
            return Operation(request, name, 0, replies, None)
        if name in _TWO_STEPS:
            follow = partial(self._second_step, name, key, self._size(line, size), write)
            request = plain([b"gets" if name == "cas" else b"get", key])
            return Operation(request, name, 1, 1, follow)
        if name in ("incr", "decr"):
            words = [command, key, b"1"]
        elif name == "touch":
            words = [command, key, b"%d" % self._exptime]
        elif name == "delete":
            words = [command, key]
        else:
            known = ", ".join(TRACE_OPERATIONS)
            raise self._error(line, f"operation must be one of {known}, not {name!r}")
        return Operation(plain(words, noreply=self._noreply), name, 0, replies, None)

    def _second_step(
        self, name: str, key: bytes, size: int, write: tuple[int, int], unique: int | None
    ) -> bytes:
        command = b"set"
        if name == "cas":
            command = b"add" if unique is None else b"cas"
        value = self._value(size, *write)
        return storage(command, key, value, exptime=self._exptime, unique=unique)

    def _value(self, size: int, number: int, sequence: int) -> bytes:
        if not self._verify:
            return self._values.plain(size)
        return self._values.make(number, sequence, size)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the lines behind the first one, with their numbers, empty ones left out."""
        try:
            with Path(self._path).open(encoding="utf-8", newline="") as file:
                rows = csv.reader(file, strict=True)
                try:
                    header = next(rows, [])
                    if tuple(header) != COLUMNS:
                        expected, found = ",".join(COLUMNS), ",".join(header)[:60]
                        raise self._error(1, f"must be {expected!r}, not {found!r}")
                    for row in rows:
                        if row:
                            yield rows.line_num, row
                except csv.Error as error:
                    raise self._error(rows.line_num, str(error)) from None
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{self._path}: must be a text file in UTF-8") from None

    def _time(self, line: int, text: str, last: float) -> float:
        try:
            time = float(text)
        except ValueError:
            time = math.nan
        if not 0 <= time < math.inf:
            raise self._error(line, f"time must be a number of seconds or empty, not {text!r}")
        if time < last:
            raise self._error(line, f"time must not go back, from {last:g} to {text}")
        return time

    def _check_key(self, line: int, text: str, key: bytes) -> None:
        if not 0 < len(key) <= _KEY_LENGTH:
            raise self._error(line, f"key must be of 1 to {_KEY_LENGTH} bytes, not {len(key)}")
        if any(byte <= 32 or byte == 127 for byte in key):
            raise self._error(line, f"key must not hold spaces or control characters: {text!r}")

    def _size(self, line: int, text: str) -> int:
        # The length first: int() refuses endless digits with an error of its own.
        if text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= LARGEST_VALUE:
            return int(text)
        raise self._error(line, f"size must be from 0 to {LARGEST_VALUE}, not {text[:40]!r}")

    def _error(self, line: int, problem: str) -> ConfigError:
        return ConfigError(f"{self._path}: line {line}: {problem}")
