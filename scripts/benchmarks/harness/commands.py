"""What each command costs a server, one request at a time and in a pipeline."""

import socket
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from struct import pack
from typing import Any, Final

from harness.contestants import Contestant, in_turn
from harness.processes import HOST, BenchError, Running, pinned, progress

__all__ = ["COMMANDS", "Cell", "Command", "Sample", "cells", "compare_commands"]

PIPELINES: Final = (1, 16)
_STEPS: Final = 4  # writes of each connection between two readings of the processor time
_MEGABYTES: Final = 1024
_VALUE: Final = b"v" * 100
_NUMBER: Final = b"1000000000"
_SET: Final = b"set K 0 0 100\r\n%b\r\n" % _VALUE
_SET_NUMBER: Final = b"set K 0 0 10\r\n%b\r\n" % _NUMBER
_HIT: Final = b"VALUE K 0 100\r\n%b\r\nEND\r\n" % _VALUE
_KEY: Final = b"key%02d%015d"  # of 20 bytes
_KEY_SIZE: Final = 20


@dataclass(frozen=True, slots=True)
class Command:
    """A command to measure; K stands for a key in all three texts.

    Attributes:
        request: the request.
        reply: what the server replies, of which only the length counts.
        before: a set that is sent first; empty for none.
        again: whether that is necessary before each request.
    """

    request: bytes
    reply: bytes
    before: bytes = b""
    again: bool = False


def _packet(opcode: int, extras: bytes = b"", value: bytes = b"") -> bytes:
    body = len(extras) + _KEY_SIZE + len(value)
    head = pack(">BBHBxHIIQ", 0x80, opcode, _KEY_SIZE, len(extras), 0, body, 0, 0)
    return head + extras + b"K" + value


def _answer(size: int) -> bytes:
    return bytes(24 + size)


_STORED: Final = b"STORED\r\n"
_BINARY_SET: Final = _packet(1, bytes(8), _VALUE)
COMMANDS: Final = {
    "get, hit": Command(b"get K\r\n", _HIT, _SET),
    "get, miss": Command(b"get K\r\n", b"END\r\n"),
    "set": Command(_SET, _STORED, _SET),
    "add, present": Command(b"add" + _SET[3:], b"NOT_STORED\r\n", _SET),
    "replace": Command(b"replace" + _SET[3:], _STORED, _SET),
    "append nothing": Command(b"append K 0 0 0\r\n\r\n", _STORED, _SET),
    "cas, absent": Command(b"cas K 0 0 100 1\r\n%b\r\n" % _VALUE, b"NOT_FOUND\r\n"),
    "incr": Command(b"incr K 1\r\n", _NUMBER + b"\r\n", _SET_NUMBER),
    "decr": Command(b"decr K 0\r\n", _NUMBER + b"\r\n", _SET_NUMBER),
    "delete": Command(b"delete K\r\n", b"DELETED\r\n", _SET, again=True),
    "delete, miss": Command(b"delete K\r\n", b"NOT_FOUND\r\n"),
    "touch": Command(b"touch K 0\r\n", b"TOUCHED\r\n", _SET),
    "gat": Command(b"gat 0 K\r\n", _HIT, _SET),
    "mg, hit": Command(b"mg K v\r\n", b"VA 100\r\n%b\r\n" % _VALUE, _SET),
    "mg, miss": Command(b"mg K v\r\n", b"EN\r\n"),
    "mg s t f v": Command(b"mg K s t f v\r\n", b"VA 100 s100 t-1 f0\r\n%b\r\n" % _VALUE, _SET),
    "ms": Command(b"ms K 100\r\n%b\r\n" % _VALUE, b"HD\r\n", _SET),
    "md": Command(b"md K\r\n", b"HD\r\n", _SET, again=True),
    "ma": Command(b"ma K v\r\n", b"VA 10\r\n%b\r\n" % _NUMBER, _SET_NUMBER),
    "binary get, hit": Command(_packet(0), _answer(104), _BINARY_SET),
    "binary get, miss": Command(_packet(0), _answer(len(b"Not found"))),
    "binary set": Command(_BINARY_SET, _answer(0), _BINARY_SET),
    "binary incr": Command(
        _packet(5, pack(">QQI", 1, 0, 0)), _answer(8), _packet(1, bytes(8), _NUMBER)
    ),
    "binary append": Command(_packet(0x0E), _answer(0), _BINARY_SET),
}
"""The commands by their names in the table."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The cost of a command on one server in one round.

    Attributes:
        command: its name.
        pipeline: requests per write.
        round: the number of the round, from 1.
        server: a contestant's name.
        microseconds: processor time per operation.
    """

    command: str
    pipeline: int
    round: int
    server: str
    microseconds: float

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object for the results file."""
        return {"scenario": "commands"} | {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Cell:
    """The median cost of a command on memcached and on another server.

    Attributes:
        command: its name.
        pipeline: requests per write.
        server: the other server.
        peer: microseconds of memcached's processor time per operation.
        ours: microseconds of the other server's.
        efficiency: the median of memcached's divided by the other's within a round.
    """

    command: str
    pipeline: int
    server: str
    peer: float
    ours: float
    efficiency: float


def cells(samples: Sequence[Sample]) -> list[Cell]:
    """Return the medians over the rounds, the lowest efficiency first."""
    costs: dict[tuple[str, int], dict[str, list[float]]] = {}
    for one in samples:
        servers = costs.setdefault((one.command, one.pipeline), {})
        servers.setdefault(one.server, []).append(one.microseconds)
    median = statistics.median
    found = []
    for (command, pipeline), servers in costs.items():
        (_, peer), *others = servers.items()
        for server, ours in others:
            ratio = median(a / b for a, b in zip(peer, ours, strict=True))
            found.append(Cell(command, pipeline, server, median(peer), median(ours), ratio))
    return sorted(found, key=lambda cell: cell.efficiency)


class _Clients:
    """Connections that all send a batch, and then all wait for their replies."""

    def __init__(self, stack: ExitStack, port: int, count: int) -> None:
        self._sockets = [
            stack.enter_context(socket.create_connection((HOST, port), timeout=60))
            for _ in range(count)
        ]
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, form: bytes, size: int, number: int, pipeline: int) -> int:
        """Send `form` for some keys, and read replies of `size` bytes each; return how many.

        Raises:
            BenchError: a reply has another length.
        """
        keys = iter(range(len(self._sockets) * _STEPS * pipeline))
        for _ in range(_STEPS):
            for one in self._sockets:
                batch = (form.replace(b"K", _KEY % (number, next(keys))) for _ in range(pipeline))
                one.sendall(b"".join(batch))
            for one in self._sockets:
                left = size * pipeline
                while left > 0:
                    reply = one.recv(left + 1)
                    left -= len(reply)
                    if not reply or left < 0:
                        raise BenchError(f"{form[:40]!r} had another reply: {reply[:60]!r}")
        return len(self._sockets) * _STEPS * pipeline


def _processor_seconds(pid: int) -> float:
    """Return the processor time of a process, which the kernel counts in nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text(encoding="ascii").split()[0]) for one in tasks) / 1e9


def _measure(server: Running, clients: _Clients, name: str, pipeline: int, seconds: float) -> float:
    """Return microseconds of processor time per operation."""
    command, number = COMMANDS[name], list(COMMANDS).index(name)
    stored = len(_answer(0) if name.startswith("binary") else _STORED)
    size = len(command.reply.replace(b"K", bytes(_KEY_SIZE)))
    used, operations, end = 0.0, 0, time.monotonic() + seconds
    while not operations or time.monotonic() < end:
        if command.before and (command.again or not operations):
            clients.run(command.before, stored, number, pipeline)
        begun = _processor_seconds(server.pid)
        operations += clients.run(command.request, size, number, pipeline)
        used += _processor_seconds(server.pid) - begun
    return 1e6 * used / operations


def compare_commands(
    contestants: Sequence[Contestant],
    cores: tuple[int, int],
    rounds: int,
    seconds: float,
    connections: int,
) -> list[Sample]:
    """Measure every command on every server.

    Args:
        contestants: the servers, memcached first.
        cores: one for servers, one for the clients.
        rounds: the number of measurements of each command on each server.
        seconds: the duration of a measurement.
        connections: the number of connections.

    Raises:
        BenchError: a server fails, or replies differently.
    """
    found = []
    with ExitStack() as stack:
        servers = {
            one.name: stack.enter_context(one.running(cores[0], _MEGABYTES)) for one in contestants
        }
        stack.enter_context(pinned(cores[1]))
        # A connection speaks one protocol.
        clients = {
            (which, binary): _Clients(stack, server.port, connections)
            for which, server in servers.items()
            for binary in (False, True)
        }
        for name in COMMANDS:
            binary = name.startswith("binary")
            for pipeline in PIPELINES:
                progress(f"{name}, {pipeline} per write")
                for turn in range(1, rounds + 1):
                    costs = {
                        which: _measure(
                            servers[which],
                            clients[which, binary],
                            name,
                            pipeline,
                            seconds,
                        )
                        for which in in_turn(list(servers), turn)
                    }
                    found += [
                        Sample(name, pipeline, turn, which, costs[which]) for which in servers
                    ]
    return found
