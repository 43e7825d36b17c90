"""Count the instructions of each command with valgrind, in memlite or in a memcached.

Counts from received bytes to the reply, without sockets, kernel, event loop and garbage collector;
no read is sampled. For a peer, the whole process is counted, without the kernel. Other load on the
machine hardly matters. To count an older version, set PYTHONPATH to its checkout. Python needs its
symbols.
"""

import argparse
import gc
import getpass
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

_KEYS: Final = [b"key%017d" % number for number in range(192)]
_PER_WRITE: Final = (1, 16, 64)
_VALUE: Final = b"v" * 100
_FAR: Final = 10**8  # reads until one is sampled
_SETTLED: Final = 0.3  # seconds of silence after which a peer counts as done
# The limit on the files that a peer may open. valgrind takes twelve of them, and does not let the
# peer set another limit.
_FILES: Final = 1024
_VALGRIND: Final = ("valgrind", "--tool=callgrind")


def _each(form: bytes) -> list[bytes]:
    """Return `form` once for each key, with K replaced by the key."""
    return [form.replace(b"K", key) for key in _KEYS]


def _packets(opcode: int, extras: bytes = b"", value: bytes = b"") -> list[bytes]:
    """Return a packet for each key."""
    size = len(extras) + len(value)
    return [
        struct.pack(">BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, len(key) + size, 7, 0)
        + extras
        + key
        + value
        for key in _KEYS
    ]


def _gets(count: int) -> list[bytes]:
    return [
        b"get %b\r\n" % b" ".join(_KEYS[at : at + count])
        for at in range(0, len(_KEYS) - count + 1, min(count, 10))
    ]


_SET: Final = _each(b"set K 0 0 100\r\n%b\r\n" % _VALUE)
_MORTAL: Final = _each(b"set K 0 1000 100\r\n%b\r\n" % _VALUE)
_NUMBER: Final = _each(b"set K 0 0 3\r\n100\r\n")
_DELETE: Final = _each(b"delete K\r\n")
_PACKET_SET: Final = _packets(1, bytes(8), _VALUE)
_PACKET_DELETE: Final = _packets(4)

# Commands that have the same effect when repeated; the first time is more expensive.
_REPEATABLE: Final = frozenset({
    "get, hit", "get, miss", "get of 10 keys, hits", "get of 10 keys, misses",
    "get of 100 keys, hits", "gets", "gets, miss", "set", "set with an expiry", "add, not stored",
    "replace", "cas of another unique", "cas of a missing key", "incr", "delete, miss", "touch",
    "gat", "gat, miss", "gats", "mg v, hit", "mg v, miss", "mg s t f v", "ms", "md, miss", "md I T",
    "ma v", "binary get, hit", "binary get, miss", "binary getkq, hit", "binary set", "binary incr",
    "binary delete, miss", "binary touch",
})  # fmt: skip

# For each command: the preparation, and the requests that are counted.
CELLS: Final[dict[str, tuple[list[bytes], list[bytes]]]] = {
    "get, hit": (_SET, _each(b"get K\r\n")),
    "get, miss": ([], _each(b"get K\r\n")),
    "get of 10 keys, hits": (_SET, _gets(10)),
    "get of 10 keys, misses": ([], _gets(10)),
    "get of 100 keys, hits": (_SET, _gets(100)),
    "gets": (_SET + _each(b"gets K\r\n"), _each(b"gets K\r\n")),
    "gets, miss": ([], _each(b"gets K\r\n")),
    "set": (_SET, _SET),
    "set of a new key": ([], _SET),
    "set of a key deleted before": (_SET + _DELETE, _SET),
    "set of a shorter value": (_SET, _each(b"set K 0 0 50\r\n%b\r\n" % _VALUE[:50])),
    "set with an expiry": (_MORTAL, _MORTAL),
    "set with an expiry, new key": ([], _MORTAL),
    "add, not stored": (_SET, _each(b"add K 0 0 100\r\n%b\r\n" % _VALUE)),
    "add of a new key": ([], _each(b"add K 0 0 100\r\n%b\r\n" % _VALUE)),
    "replace": (_SET, _each(b"replace K 0 0 100\r\n%b\r\n" % _VALUE)),
    "append of 4 bytes": (_SET, _each(b"append K 0 0 4\r\nabcd\r\n")),
    "cas of another unique": (
        _SET + _each(b"gets K\r\n"),
        _each(b"cas K 0 0 100 999999\r\n%b\r\n" % _VALUE),
    ),
    "cas of a missing key": ([], _each(b"cas K 0 0 100 5\r\n%b\r\n" % _VALUE)),
    "incr": (_NUMBER, _each(b"incr K 1\r\n")),
    "delete, hit": (_SET, _DELETE),
    "delete, miss": ([], _DELETE),
    "touch": (_MORTAL, _each(b"touch K 1000\r\n")),
    "gat": (_MORTAL, _each(b"gat 1000 K\r\n")),
    "gat, first expiry": (_SET, _each(b"gat 1000 K\r\n")),
    "gat, miss": ([], _each(b"gat 1000 K\r\n")),
    "gats": (_MORTAL + _each(b"gats 1000 K\r\n"), _each(b"gats 1000 K\r\n")),
    "mg v, hit": (_SET, _each(b"mg K v\r\n")),
    "mg v, miss": ([], _each(b"mg K v\r\n")),
    "mg s t f v": (_SET, _each(b"mg K s t f v\r\n")),
    "ms": (_SET, _each(b"ms K 100\r\n%b\r\n" % _VALUE)),
    "ms of a new key": ([], _each(b"ms K 100\r\n%b\r\n" % _VALUE)),
    "md, hit": (_SET, _each(b"md K\r\n")),
    "md, miss": ([], _each(b"md K\r\n")),
    "md I T": (_MORTAL, _each(b"md K I T30\r\n")),
    "ma v": (_NUMBER, _each(b"ma K v\r\n")),
    "binary get, hit": (_PACKET_SET, _packets(0)),
    "binary get, miss": ([], _packets(0)),
    "binary getkq, hit": (_PACKET_SET, _packets(13)),
    "binary set": (_PACKET_SET, _PACKET_SET),
    "binary set of a new key": ([], _PACKET_SET),
    "binary append": (_PACKET_SET, _packets(14, b"", b"abcd")),
    "binary incr": (
        _packets(1, bytes(8), b"100"),
        _packets(5, struct.pack(">QQI", 1, 0, 0)),
    ),
    "binary delete, hit": (_PACKET_SET, _PACKET_DELETE),
    "binary delete, miss": ([], _PACKET_DELETE),
    "binary touch": (
        _packets(1, struct.pack(">II", 0, 1000), _VALUE),
        _packets(28, struct.pack(">I", 1000)),
    ),
}


class _Loop:
    """Stands in for an event loop: runs due callbacks on demand."""

    def __init__(self) -> None:
        self._due: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        self._due.append((function, arguments))

    def run(self) -> None:
        while self._due:
            function, arguments = self._due.popleft()
            function(*arguments)


class _Nowhere:
    """A transport that accepts all data and sends nothing."""

    def __init__(self) -> None:
        self.taken: Any = b""

    def write(self, data: Any) -> None:
        self.taken = data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def _first(commands: list[bytes]) -> bytes:
    """Return a command that tells the server which protocol the client speaks."""
    return struct.pack(">BBHB19x", 0x80, 10, 0, 0) if commands[0][0] == 0x80 else b"get x\r\n"


def _together(commands: list[bytes], count: int) -> list[bytes]:
    return [b"".join(commands[at : at + count]) for at in range(0, len(commands), count)]


def _worker() -> Any:
    """Return one of two workers on a table in shared memory, of which it is the only user."""
    from memlite.config import MEGABYTE, Config
    from memlite.core.clock import Clock
    from memlite.memory.shared import Mapping
    from memlite.server.workers.board import Board
    from memlite.server.workers.shared import Shared
    from memlite.server.workers.worker import WorkerServer

    mapping = Mapping(64 * MEGABYTE, MEGABYTE, 2)
    mapping.table.attach(0)
    channel: Any = None  # no connections come
    return WorkerServer(
        Config(), [], Shared(mapping), Board(2), 0, channel, tls=None, clock=Clock()
    )


def _carry_out(names: Sequence[str], *, shared: bool) -> None:
    """Carry out commands, with a call of `getppid` before and after the counted part."""
    from memlite.config import Config
    from memlite.server.server import Server

    gc.disable()
    for name in names:
        before, commands = CELLS[name]
        for count in _PER_WRITE:
            server = _worker() if shared else Server(Config(), [])
            server.counters.sample_after(_FAR)
            server.counters.until_slow_sample = _FAR
            loop: Any = _Loop()
            server.scheduler.loop = loop
            connection = server.connect()
            transport: Any = _Nowhere()
            connection.connection_made(transport)
            received = connection.data_received  # bound once, as in a transport
            for read in (*before, _first(commands)):
                received(read)
                loop.run()
            if name in _REPEATABLE:
                for read in commands:
                    received(read)
            reads = _together(commands, count)
            os.getppid()
            for read in reads:
                received(read)
                loop.run()
            os.getppid()
            if b"ERROR" in bytes(transport.taken):
                raise RuntimeError(f"{reads[0][:40]!r} was answered with {transport.taken!r}")


def _totals(folder: Path) -> dict[int, int]:
    """Return the instructions in each of valgrind's files, by its number."""
    found = {}
    for file in folder.glob("out.*"):
        match = re.search(rb"^totals: (\d+)", file.read_bytes(), re.MULTILINE)
        if match and file.suffix[1:].isdigit():
            found[int(file.suffix[1:])] = int(match[1])
    return found


def count(
    names: Sequence[str], *, in_python: bool = False, shared: bool = False
) -> dict[str, list[float]]:
    """Return instructions per command by name, for each number of commands in a write."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    if in_python:  # must precede any import of a module in C
        environment["MEMLITE_NO_EXTENSIONS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *_VALGRIND, f"--callgrind-out-file={folder}/out", "--dump-before=os_getppid",
            sys.executable, __file__, "--inner", *(["--shared"] if shared else []), *names,
        ]  # fmt: skip
        ran = subprocess.run(command, env=environment, capture_output=True, check=False)
        if ran.returncode:
            raise RuntimeError(ran.stderr.decode(errors="replace")[-2000:])
        totals = _totals(Path(folder))
        if 2 not in totals:
            raise RuntimeError(
                f"{sys.executable} has no symbols, which are needed to tell runs apart"
            )
    found, number = {}, 0
    for name in names:
        counts = []
        for _ in _PER_WRITE:
            number += 2
            counts.append(totals[number] / len(CELLS[name][1]))
        found[name] = counts
    return found


def _connect(port: int) -> socket.socket:
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _send(link: socket.socket, commands: list[bytes], per_write: int) -> None:
    """Send commands, each write after the reply to the previous one, and read all replies."""
    for write in _together(commands, per_write):
        link.sendall(write)
        if not link.recv(1 << 20):
            raise RuntimeError("the peer closed the connection")
    link.settimeout(_SETTLED)
    try:
        while link.recv(1 << 20):
            pass
    except TimeoutError:
        link.settimeout(None)


def count_peer(names: Sequence[str], path: str) -> dict[str, list[float]]:
    """Return the same as `count` for a memcached, whose whole process is counted."""
    found: dict[str, list[float]] = {}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *_VALGRIND, f"--callgrind-out-file={folder}/out",
            path, "-t", "1", "-l", "127.0.0.1", "-p", str(port), "-U", "0",
            "-c", str(_FILES - 12), "-u", getpass.getuser(),
        ]  # fmt: skip
        server = subprocess.Popen(
            ["sh", "-c", f'ulimit -n {_FILES} && exec "$@"', "sh", *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        number = 0

        def instructions() -> int:
            nonlocal number
            subprocess.run(
                ["callgrind_control", "-d", str(server.pid)], capture_output=True, check=True
            )
            number += 1
            return _totals(Path(folder))[number]

        try:
            for name in names:
                before, commands = CELLS[name]
                counts = []
                for per_write in _PER_WRITE:
                    with _connect(port) as link:
                        _send(link, _DELETE, 64)
                    with _connect(port) as link:
                        _send(link, [*before, _first(commands)], 16)
                        instructions()
                        _send(link, commands, per_write)
                        counts.append(instructions() / len(commands))
                found[name] = counts
        finally:
            server.terminate()
            server.wait()
    return found


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="COMMAND", help="default: all")
    parser.add_argument("--python", action="store_true", help="measure the pure Python version")
    parser.add_argument(
        "--shared", action="store_true", help="measure a worker with a shared table (-t)"
    )
    parser.add_argument("--peer", help="measure this memcached instead")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(CELLS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CELLS)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    options = parse(arguments)
    names = options.names or list(CELLS)
    if options.inner:
        _carry_out(names, shared=options.shared)
        return 0
    if options.peer:
        found = count_peer(names, options.peer)
    else:
        found = count(names, in_python=options.python, shared=options.shared)
    print("instructions per command" + "".join(f"{f'{one} per write':>15}" for one in _PER_WRITE))
    for name, counts in found.items():
        print(f"{name:<32}" + "".join(f"{one:>15,.0f}" for one in counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
