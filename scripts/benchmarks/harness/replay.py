"""Replays traces against real servers; counts misses and memory with the same ``-m``."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.contestants import Contestant
from harness.processes import BenchError, Running, children, pinned, progress, resident
from harness.wire import Wire

__all__ = ["SERVERS", "Replay", "Request", "columns", "read_trace", "replay", "windows"]

Request = tuple[bytes, int]
"""A key, and the size of its value in bytes."""

# The server of each column: the contestant's name, and further options.
SERVERS: Final = {
    "memcached": ("memcached", ()),
    "memlite, s3fifo": ("memlite", ("--eviction", "s3fifo")),
    "memlite, lru": ("memlite", ("--eviction", "lru")),
    "memlite -t 2": ("memlite", ("-t", "2")),
}
# Requests for different keys in progress at the same time, as if from this number of clients.
_WINDOW: Final = 32
# Time of the request, number of the object, its size, and when it is requested again.
_RECORD: Final = struct.Struct("<IQIq")
_REFUSED: Final = (b"SERVER_ERROR out of memory", b"SERVER_ERROR object too large")


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of one server for a trace.

    Attributes:
        misses: requests whose key was absent.
        refused: values not stored, for lack of memory or because they are too large.
        grown: bytes by which the memory of its process grew; 0 for a server with workers, which
            start meanwhile and whose table has the size of ``-m`` from the start.
    """

    misses: int
    refused: int
    grown: int


def read_trace(file: Path) -> Iterator[Request]:
    """Yield the requests of a trace in libCacheSim's format ``oracleGeneral``, not compressed.

    Raises:
        BenchError: the file cannot be read, or has another format.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BenchError(f"{file}: {error.strerror}") from error
    if not data or len(data) % _RECORD.size:
        raise BenchError(f"{file} is not an uncompressed trace in oracleGeneral format")
    for _, number, size, _ in _RECORD.iter_unpack(data):
        yield b"%020d" % number, size


def windows(requests: Iterable[Request]) -> Iterator[list[Request]]:
    """Yield the requests in order, in groups as large as possible without repeated keys."""
    found: dict[bytes, int] = {}
    for key, size in requests:
        if len(found) == _WINDOW or key in found:
            yield list(found.items())
            found = {}
        found[key] = size
    if found:
        yield list(found.items())


def replay(server: Running, requests: Iterable[Request]) -> Replay:
    """Get each key from a server, and store the keys it lacks.

    Raises:
        BenchError: it replies with an error other than a refusal to store a value.
    """
    before = resident(server.pid)
    misses = refused = 0
    with Wire(server.port) as wire:
        for window in windows(requests):
            hits = wire.keys([key for key, _ in window])
            missed = [one for one in window if one[0] not in hits]
            misses += len(missed)
            replies = wire.pipelined(
                [b"set %b 0 0 %d\r\n%b\r\n" % (key, size, bytes(size)) for key, size in missed]
            )
            for reply, count in replies.items():
                if reply.startswith(_REFUSED):
                    refused += count
                elif reply != b"STORED":
                    raise BenchError(f"a set was answered with {reply.decode()}")
    grown = 0 if children(server.pid) else resident(server.pid) - before
    return Replay(misses, refused, grown)


def columns(
    contestants: Sequence[Contestant],
    cores: tuple[int, int],
    megabytes: int,
    requests: Sequence[Request],
) -> dict[str, Replay]:
    """Replay a trace against each of `SERVERS`, one after the other, each with ``-m``.

    Raises:
        BenchError: a server fails.
    """
    by_name = {one.name: one for one in contestants}
    found = {}
    for column, (name, options) in SERVERS.items():
        progress(f"-m {megabytes}: {column}")
        with ExitStack() as stack:
            server = stack.enter_context(by_name[name].running(cores[0], megabytes, *options))
            stack.enter_context(pinned(cores[1]))
            found[column] = replay(server, requests)
    progress("")
    return found
