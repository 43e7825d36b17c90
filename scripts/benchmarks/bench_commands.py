"""Measure the cost of commands in a server's process, from received bytes to the reply.

Excludes sockets, kernel and event loop. Measures the build that runs it: to compare builds, run it
with the Python of each, in a folder without the package's sources.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, Final

from memlite import __version__
from memlite.config import Config
from memlite.core.build import running_build
from memlite.server.server import Server

_KEYS: Final = 1000
_VALUE: Final = b"v" * 100
_AT_ONCE: Final = 16
_MULTIGET: Final = 10


class _Nowhere(asyncio.Transport):
    """A transport that accepts all data and sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = b""

    def write(self, data: Any) -> None:
        self.taken = data

    def get_write_buffer_size(self) -> int:
        return 0


def _each(form: bytes) -> list[bytes]:
    """Return `form` once for each key, with K replaced by the key."""
    return [form.replace(b"K", b"key%017d" % number) for number in range(_KEYS)]


def _together(commands: list[bytes], count: int) -> list[bytes]:
    return [b"".join(commands[at : at + count]) for at in range(0, _KEYS - count, count)]


def _multigets() -> list[bytes]:
    keys = [b"key%017d" % number for number in range(_KEYS)]
    steps = range(0, _KEYS, _MULTIGET)
    return [b"get %b\r\n" % b" ".join(keys[at : at + _MULTIGET]) for at in steps]


_GETS: Final = _each(b"get K\r\n")
_SETS: Final = _each(b"set K 0 0 100\r\n%b\r\n" % _VALUE)
_MORTAL_SETS: Final = _each(b"set K 0 1000 100\r\n%b\r\n" % _VALUE)
_NUMBERS: Final = _each(b"set K 0 0 2\r\n10\r\n")

# For each row: the preparation, the measured reads, and the number of commands per read.
LOADS: Final[dict[str, tuple[list[bytes], list[bytes], int]]] = {
    "get": (_SETS, _GETS, 1),
    "get of an item that expires": (_MORTAL_SETS, _GETS, 1),
    "get, a miss": ([], _each(b"get other-K\r\n"), 1),
    "get of 10 keys, per key": (_SETS, _multigets(), _MULTIGET),
    "get, 16 in a row": (_SETS, _together(_GETS, _AT_ONCE), _AT_ONCE),
    "set of 100 bytes": (_SETS, _SETS, 1),
    "set of 100 bytes that expire": (_MORTAL_SETS, _MORTAL_SETS, 1),
    "set, 16 in a row": (_SETS, _together(_SETS, _AT_ONCE), _AT_ONCE),
    "incr": (_NUMBERS, _each(b"incr K 1\r\n"), 1),
    "mg": (_SETS, _each(b"mg K v\r\n"), 1),
    "ms of 100 bytes": (_SETS, _each(b"ms K 100\r\n%b\r\n" % _VALUE), 1),
}


def measure(before: list[bytes], reads: list[bytes], commands: int, rounds: int) -> float:
    """Return nanoseconds per command, the minimum over the rounds.

    Raises:
        RuntimeError: the reply to a command was an error.
    """
    connection = Server(Config(), []).connect()
    transport = _Nowhere()
    connection.connection_made(transport)
    receive = connection.data_received
    for read in before:
        receive(read)
    for read in reads:
        receive(read)
        if b"ERROR" in transport.taken:
            raise RuntimeError(f"{read[:40]!r} was answered with {transport.taken!r}")
    least = float("inf")
    for _ in range(rounds):
        begin = perf_counter_ns()
        for read in reads:
            receive(read)
        least = min(least, (perf_counter_ns() - begin) / len(reads) / commands)
    return least


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300, help="of each command (default: 300)")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be positive")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    options = parse(arguments)
    python = sys.version.partition(" ")[0]
    print(f"memlite {__version__} ({running_build()}), Python {python}; ns per command\n")
    for name, load in LOADS.items():
        print(f"{name:<30}{measure(*load, options.rounds):>8,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
