"""The cost of each command on a server, one request at a time and in a pipeline."""

import resource
import socket
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from harness.contestants import in_turn
from harness.processes import HOST, BenchError, Running, load, pinned, progress
from harness.requests import Command, Sizes, batch, commands, key_of, store_of
from harness.scenarios import Setting
from harness.workers import times

__all__ = [
    "Cell",
    "Sample",
    "allow_connections",
    "cells",
    "compare_commands",
    "measure_commands",
    "show_cells",
]

PIPELINES: Final = (1, 16)
_STEPS: Final = 4
_MANY: Final = 400  # connections, each of which takes one step
_MEGABYTES: Final = 1024
_ITEM: Final = 300  # bytes of memory of an item with a value of 100
# Further connections that servers and this script keep open.
_MORE_CONNECTIONS: Final = 100


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
        ours: the same for the other server.
        efficiency: the median of memcached's time divided by the other server's, within a round.
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


_HEADING: Final = """
CPU per operation, µs, worst first   per write  {kind:<11} memcached     its  efficiency"""


def show_cells(samples: Sequence[Sample], kind: str) -> None:
    """Print the medians over the rounds; `kind` is the kind of program: a server, a proxy."""
    print(_HEADING.format(kind=kind))
    for cell in cells(samples):
        print(
            f"commands     {cell.command:<20}{cell.pipeline:>12}  {cell.server:<11}"
            f"{cell.peer:>10.2f}{cell.ours:>8.2f}{cell.efficiency:>12.2f}",
            flush=True,
        )


def _steps(connections: int) -> int:
    """Return the number of writes of each connection between two readings of the processor time."""
    return max(1, min(_STEPS, _MANY // connections))


class _Clients:
    """Connections that all send a batch, and then wait for all replies."""

    def __init__(self, stack: ExitStack, port: int, count: int) -> None:
        self._sockets = [
            stack.enter_context(socket.create_connection((HOST, port), timeout=60))
            for _ in range(count)
        ]
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def uniques(self, command: Command, sizes: Sizes, number: int, pipeline: int) -> list[bytes]:
        """Return the cas uniques of all keys that `run` requests."""
        found = []
        with self._sockets[0].makefile("rb") as replies:
            for index in range(_steps(len(self._sockets)) * len(self._sockets) * pipeline):
                key = key_of(command, sizes, number, index)
                self._sockets[0].sendall(b"gets %b\r\n" % key)
                found.append(replies.readline().split()[4])
                replies.read(sizes.value + len(b"\r\nEND\r\n"))
        return found

    def run(
        self,
        command: Command,
        sizes: Sizes,
        number: int,
        pipeline: int,
        uniques: Sequence[bytes] = (),
    ) -> int:
        """Send requests for some keys, and read the replies; return the number of keys.

        Raises:
            BenchError: a reply has an unexpected length.
        """
        operations = 0
        for _ in range(_steps(len(self._sockets))):
            batches = []
            for one in self._sockets:
                sent = batch(command, sizes, number, operations, pipeline, uniques)
                one.sendall(sent.data)
                batches.append(sent)
                operations += sent.operations
            for one, sent in zip(self._sockets, batches, strict=True):
                if sent.end:
                    _receive_ends(one, command, sent.end, pipeline)
                else:
                    _receive(one, command, sent.size)
        return operations


def _receive(connection: socket.socket, command: Command, left: int) -> None:
    while left > 0:
        reply = connection.recv(left + 1)
        left -= len(reply)
        if not reply or left < 0:
            raise BenchError(f"{command.request[:40]!r} unexpected reply: {reply[-60:]!r}")


def _receive_ends(connection: socket.socket, command: Command, end: bytes, left: int) -> None:
    replies = b""
    while left > 0 or replies:
        received = connection.recv(2**20)
        *whole, replies = (replies + received).split(end)
        left -= len(whole)
        if not received or left < 0:
            raise BenchError(f"{command.request[:40]!r} unexpected reply: {received[-60:]!r}")


def _processor_seconds(pid: int) -> float:
    """Return the processor time of all threads or workers, in seconds."""
    return sum(times(pid).values()) / 1e9


def _measure(
    server: Running,
    clients: _Clients,
    command: Command,
    sizes: Sizes,
    number: int,
    pipeline: int,
    seconds: float,
) -> float:
    """Return microseconds of processor time per operation.

    Preparatory requests count neither as processor time nor towards `seconds`.
    """
    used, operations, lasted = 0.0, 0, 0.0
    while not operations or lasted < seconds:
        if command.before and (command.again or not operations):
            before = store_of(command)
            clients.run(before, sizes, number, pipeline * command.keys)
        uniques = clients.uniques(command, sizes, number, pipeline) if command.unique else ()
        begun, started = _processor_seconds(server.pid), time.monotonic()
        operations += clients.run(command, sizes, number, pipeline, uniques)
        lasted += time.monotonic() - started
        used += _processor_seconds(server.pid) - begun
    return 1e6 * used / operations


def allow_connections(count: int) -> None:
    """Allow this process, and each server it starts, to open this number of connections.

    Raises:
        BenchError: the system allows fewer.
    """
    files = count + _MORE_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < files:
        raise BenchError(f"{files} open files are needed, and the limit is {hard}; see ulimit -Hn")
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def compare_commands(
    setting: Setting, seconds: float, sizes: Sizes, items: int, only: Sequence[str], threads: int
) -> list[Sample]:
    """Measure commands on every server.

    Args:
        setting: the servers, cores, rounds and connections.
        seconds: the duration of a measurement.
        sizes: the sizes of keys and values.
        items: number of other items stored beforehand.
        only: the names of the commands; empty for all.
        threads: the servers' threads or workers.

    Raises:
        BenchError: a server fails, or replies differently.
    """
    connections, cores = setting.connections, setting.cores
    of_keys = connections * _steps(connections) * max(PIPELINES)
    megabytes = _MEGABYTES + (of_keys * sizes.value + items * _ITEM) // 2**20
    more = "-c", str(2 * connections + _MORE_CONNECTIONS), "-t", str(threads)
    allow_connections(len(setting.contestants) * connections)
    with ExitStack() as stack:
        servers = {
            one.name: stack.enter_context(one.running(cores[0], megabytes, *more))
            for one in setting.contestants
        }
        for which, server in servers.items():
            if items:
                progress(f"{which}: storing {items:,} items")
                # Many per write: one at a time, ten million take half an hour on a busy machine.
                fill = [f"--keys={items}", "--prefill", "--pipeline=100", "--connections=4"]
                load(setting.loadgen, server.port, cores[1], fill)
        return measure_commands(setting, servers, seconds, sizes, only or list(commands(sizes)))


def measure_commands(
    setting: Setting,
    servers: Mapping[str, Running],
    seconds: float,
    sizes: Sizes,
    names: Sequence[str],
) -> list[Sample]:
    """Measure commands on running servers; see `compare_commands`.

    Args:
        setting: the cores, rounds and connections.
        servers: the servers by name, the reference server first.
        seconds: the duration of a measurement.
        sizes: the sizes of keys and values.
        names: the names of the commands.

    Raises:
        BenchError: a server replies differently.
    """
    found = []
    table = commands(sizes)
    with pinned(setting.cores[1]):
        for binary in (False, True):  # a connection uses only one protocol
            chosen = {
                number: name
                for number, (name, command) in enumerate(table.items())
                if command.binary is binary and name in names
            }
            with ExitStack() as connected:
                clients = {
                    which: _Clients(connected, server.port, setting.connections if chosen else 0)
                    for which, server in servers.items()
                }
                for number, name in chosen.items():
                    for pipeline in PIPELINES:
                        progress(f"{name}, {pipeline} per write")
                        found += _rounds(
                            servers, clients, (name, table[name]), sizes, number, pipeline, setting,
                            seconds,
                        )  # fmt: skip
    return found


def _rounds(
    servers: Mapping[str, Running],
    clients: Mapping[str, _Clients],
    named: tuple[str, Command],
    sizes: Sizes,
    number: int,
    pipeline: int,
    setting: Setting,
    seconds: float,
) -> list[Sample]:
    """Measure a command on every server, in all rounds."""
    name, command = named
    found = []
    for turn in range(1, setting.rounds + 1):
        costs = {
            which: _measure(
                servers[which], clients[which], command, sizes, number, pipeline, seconds
            )
            for which in in_turn(list(servers), turn)
        }
        found += [Sample(name, pipeline, turn, which, costs[which]) for which in servers]
    return found
