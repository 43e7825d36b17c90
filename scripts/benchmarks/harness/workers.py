"""Servers with several threads or worker processes: cost per operation, and its distribution."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, Final

from harness.contestants import Contestant, in_turn
from harness.processes import (
    BenchError,
    Running,
    children,
    load,
    pinned,
    progress,
    thread_nanoseconds,
)
from harness.scenarios import Scenario, Setting

__all__ = ["LOADS", "Load", "Party", "Sample", "compare_threads", "connected", "times"]

# Each worker of memlite needs room for the largest item, and the items have to fit.
_MEGABYTES: Final = 64
_NANOSECONDS: Final = 1e9
_SKEW: Final = 0.99
_STOP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """A kind of load.

    Attributes:
        requests: the requests.
        connections: the load generator's connections; 0 for the run's number.
        absent: whether all gets are misses.
        skew: the exponent of Zipf's law for the choice of keys.
    """

    requests: Scenario
    connections: int = 0
    absent: bool = False
    skew: float = _SKEW

    def arguments(self, connections: int) -> list[str]:
        """Return the load generator's options."""
        return [
            *self.requests.arguments(),
            f"--connections={self.connections or connections}",
            f"--skew={self.skew}",
            *(["--absent"] if self.absent else []),
        ]


LOADS: Final = {
    "get": Load(Scenario("gets, all of them hits", sets=0)),
    "get-8": Load(Scenario("the same with 8 connections", sets=0), 8),
    "get-200": Load(Scenario("the same with 200 connections", sets=0), 200),
    "miss": Load(Scenario("gets, all of them misses", sets=0), absent=True),
    "set": Load(Scenario("sets", gets=0)),
    "mixed": Load(Scenario("10 gets to 1 set")),
    "get-p16": Load(Scenario("gets, 16 requests per write", sets=0, pipeline=16)),
    "miss-p16": Load(Scenario("misses, 16 requests per write", sets=0, pipeline=16), absent=True),
    "set-p16": Load(Scenario("sets, 16 requests per write", gets=0, pipeline=16)),
    "get-x10": Load(Scenario("gets of 10 keys", sets=0, multiget=10)),
    "get-x100": Load(Scenario("gets of 100 keys", sets=0, multiget=100)),
}


@dataclass(frozen=True, slots=True)
class Party:
    """A server with a number of threads or worker processes (``-t``)."""

    contestant: Contestant
    threads: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of a server under a load.

    Attributes:
        load: the name of the load.
        round: the number of the round, from 1.
        server: a contestant's name.
        threads: its threads or workers.
        seconds: the processor time of all its processes and threads.
        busiest: the processor time of the busiest thread or worker, divided by the mean of
            `threads` of them.
        operations: number of operations carried out.
        rate: operations per second.
    """

    load: str
    round: int
    server: str
    threads: int
    seconds: float
    busiest: float
    operations: int
    rate: float

    @property
    def microseconds(self) -> float:
        """Processor time per operation."""
        return 1e6 * self.seconds / self.operations

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object for the results file."""
        cost = {"microseconds_per_operation": self.microseconds}
        return {"scenario": "threads", **asdict(self), **cost}


def compare_threads(
    setting: Setting, threads: Sequence[int], names: Sequence[str], seconds: float
) -> list[Sample]:
    """Measure every load on every server with each number of threads, in rounds.

    All servers run on one core, so that the figure is the cost of N workers rather than their
    waiting time. Connections are opened and closed outside the measurement.

    Args:
        setting: the settings of the run.
        threads: the numbers of threads.
        names: names in `LOADS`.
        seconds: the duration of a measurement.

    Raises:
        BenchError: a server or the load generator failed.
    """
    parties = [Party(one, count) for count in threads for one in setting.contestants]
    found = []
    with ExitStack() as stack:
        servers = []
        for party in parties:
            arguments = "-t", str(party.threads)
            running = party.contestant.running(setting.cores[0], _MEGABYTES, *arguments)
            where = stack.enter_context(running)
            load(setting.loadgen, where.port, setting.cores[1], ["--prefill"])
            servers.append((party, where))
        for name in names:
            for turn in range(1, setting.rounds + 1):
                progress(f"threads, {name}: round {turn} of {setting.rounds}")
                found += [
                    _measure(setting, name, turn, party, where, seconds)
                    for party, where in in_turn(servers, turn)
                ]
    return found


def _measure(
    setting: Setting, name: str, turn: int, party: Party, where: Running, seconds: float
) -> Sample:
    arguments = [
        *LOADS[name].arguments(setting.connections),
        f"--seconds={seconds}",
        f"--seed={turn}",
    ]
    with connected(setting, where, arguments) as run:
        before = times(where.pid)
        printed = run()
        after = times(where.pid)
    used = [after[one] - before.get(one, 0) for one in after]
    total = sum(used)
    server = party.contestant.name
    if not total:
        raise BenchError(f"{name}: no processor time was measured for {server}; use more --seconds")
    return Sample(
        name,
        turn,
        server,
        party.threads,
        total / _NANOSECONDS,
        max(used) / total * party.threads,
        printed["operations"],
        printed["operations"] / printed["seconds"],
    )


@contextlib.contextmanager
def connected(
    setting: Setting, where: Running, arguments: Sequence[str]
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Connect the load generator; yield a function that runs it once and returns its output."""
    command = [str(setting.loadgen), f"--port={where.port}", "--hold", *arguments]
    with pinned(setting.cores[1]):
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
    assert process.stdin and process.stdout and process.stderr

    def line() -> str:
        assert process.stdout and process.stderr
        said = process.stdout.readline()
        if not said:
            raise BenchError(process.stderr.read().strip() or "loadgen has ended")
        return said

    def run() -> dict[str, Any]:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        printed: dict[str, Any] = json.loads(line())
        return printed

    try:
        line()
        yield run
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()


def times(pid: int) -> dict[int, int]:
    """Return the processor time of each child of a server, or else of each of its threads.

    It is in nanoseconds, by process or thread ID; a server with children is included as one of
    them.
    """
    workers = children(pid)
    if not workers:
        return thread_nanoseconds(pid)
    return {one: sum(thread_nanoseconds(one).values()) for one in [pid, *workers]}
