"""Trace replay: recorded operations, read from a CSV file line by line."""

import csv
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from zlib import crc32

from memlite.core.errors import ConfigError
from memlite.loadtest.operations import Operation
from memlite.loadtest.requests import command_request, storage_request
from memlite.loadtest.values import ValueSource
from memlite.loadtest.workload import MAX_KEY_LENGTH, MAX_VALUE_SIZE, Values, Workload

__all__ = ["COLUMNS", "TRACE_OPERATIONS", "Trace"]

COLUMNS = ("time", "operation", "key", "size")
"""The header of a trace: its comma-separated column names."""

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
"""The operations a trace may contain."""


class Trace:
    """A trace file: CSV with a header line naming `COLUMNS`.

    - ``time``: seconds since an arbitrary start, never decreasing; empty means send immediately.
    - ``operation``: one of `TRACE_OPERATIONS`; ``incr`` and ``decr`` change the counter by 1.
    - ``key``: without spaces or control characters.
    - ``size``: the value's size in bytes; may be empty for operations that store nothing.

    Args:
        workload: names the file, and sets the exptime and ``noreply`` of writes.
        verify: whether values are generated so that `check` can check them.

    Raises:
        ConfigError: the file cannot be read, or its header is wrong.
    """

    def __init__(self, workload: Workload, *, verify: bool = False) -> None:
        self._path = workload.trace
        self._exptime = workload.ttl
        self._noreply = workload.load.noreply
        self._verify = verify
        self._values = ValueSource(Values(distribution="uniform", least=0, most=MAX_VALUE_SIZE))
        next(self._rows(), None)

    def operations(self, client: int, clients: int) -> Iterator[tuple[float | None, Operation]]:
        """Yield a client's operations, each with its time, or None to send it immediately.

        All operations on a key go to the same client, in order. Every client reads the whole file,
        so a few clients that distribute their operations over connections are better than many.

        Args:
            client: the client's number, from 0.
            clients: the number of clients.

        Raises:
            ConfigError: the file cannot be read, or a line is wrong; the message names the line.
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
        """Return whether a retrieved `value` was generated for `key`.

        Only meaningful with `verify`, and if only set, add, replace, cas and rmw write keys.
        """
        return self._values.check(crc32(key), value)

    def _operation(
        self, line: int, name: str, key: bytes, size: str, write: tuple[int, int]
    ) -> Operation:
        """Return the operation of one line.

        Args:
            line: the line's number.
            name: the operation's name.
            key: the item's key.
            size: the unparsed size.
            write: the key's number and the write's number, from which a value is generated.
        """
        command = name.encode()
        replies = 0 if self._noreply else 1
        if name in ("get", "gets"):
            return Operation(command_request([command, key]), name, 1, 1, None)
        if name in _STORAGE:
            value = self._value(self._size(line, size), *write)
            request = storage_request(
                command, key, value, exptime=self._exptime, noreply=self._noreply
            )
            return Operation(request, name, 0, replies, None)
        if name in _TWO_STEPS:
            follow = partial(self._second_step, name, key, self._size(line, size), write)
            request = command_request([b"gets" if name == "cas" else b"get", key])
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
        return Operation(command_request(words, noreply=self._noreply), name, 0, replies, None)

    def _second_step(
        self, name: str, key: bytes, size: int, write: tuple[int, int], unique: int | None
    ) -> bytes:
        command = b"set"
        if name == "cas":
            command = b"add" if unique is None else b"cas"
        value = self._value(size, *write)
        return storage_request(command, key, value, exptime=self._exptime, unique=unique)

    def _value(self, size: int, number: int, sequence: int) -> bytes:
        if not self._verify:
            return self._values.filler(size)
        return self._values.make(number, sequence, size)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the lines after the header with their numbers, skipping empty lines."""
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
            raise self._error(line, f"time must not decrease, from {last:g} to {text}")
        return time

    def _check_key(self, line: int, text: str, key: bytes) -> None:
        if not 0 < len(key) <= MAX_KEY_LENGTH:
            raise self._error(line, f"key must have 1 to {MAX_KEY_LENGTH} bytes, not {len(key)}")
        if any(byte <= 32 or byte == 127 for byte in key):
            raise self._error(line, f"key must not contain spaces or control characters: {text!r}")

    def _size(self, line: int, text: str) -> int:
        # Check the length first: int() rejects very long digit strings with its own error.
        if text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= MAX_VALUE_SIZE:
            return int(text)
        raise self._error(line, f"size must be from 0 to {MAX_VALUE_SIZE}, not {text[:40]!r}")

    def _error(self, line: int, problem: str) -> ConfigError:
        return ConfigError(f"{self._path}: line {line}: {problem}")
