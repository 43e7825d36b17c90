"""Kinds of load in closed loop, and their cost on each server."""

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness import memtier
from harness.contestants import Contestant, in_turn
from harness.processes import BenchError, CpuSeconds, Running, cpu_seconds, load, progress

__all__ = [
    "SCENARIOS",
    "Cost",
    "Measurement",
    "Scenario",
    "Setting",
    "compare",
    "costs",
    "measure",
]

# Enough for every scenario's items, so that no server evicts.
_MEGABYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Setting:
    """The common settings of all measurements in a run.

    Attributes:
        contestants: the servers, memcached first.
        cores: one for servers, one for the load generator.
        loadgen: the compiled load generator.
        rounds: the number of measurements of each server.
        seconds: the duration of a measurement.
        connections: the connections of the load generator.
        memtier: memtier_benchmark, if it is to generate the load of `SCENARIOS`; "" for `loadgen`.
    """

    contestants: Sequence[Contestant]
    cores: tuple[int, int]
    loadgen: Path
    rounds: int
    seconds: float
    connections: int
    memtier: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of load.

    Attributes:
        summary: one line for ``--help``.
        gets: the number of gets for every `sets` sets.
        sets: see `gets`.
        value_size: the size of a value, in bytes.
        keys: the number of keys, chosen at random; all are stored before the first round.
        pipeline: requests per write.
        multiget: keys per get, each counted as one operation.
    """

    summary: str
    gets: int = 10
    sets: int = 1
    value_size: int = 100
    keys: int = 10_000
    pipeline: int = 1
    multiget: int = 1

    def options(self) -> dict[str, int]:
        """Return the load generator's options."""
        return {
            "gets": self.gets,
            "sets": self.sets,
            "value-size": self.value_size,
            "keys": self.keys,
            "pipeline": self.pipeline,
            "multiget": self.multiget,
        }

    def arguments(self) -> list[str]:
        """Return the load generator's options as arguments."""
        return [f"--{name}={value}" for name, value in self.options().items()]


SCENARIOS: Final = {
    "get-set": Scenario("10 gets to 1 set of 100 bytes, one request at a time"),
    "sets": Scenario("sets only", gets=0),
    "1k": Scenario("1 get to 1 set of 1 KiB", gets=1, value_size=1024),
    "pipeline-16": Scenario("10 gets to 1 set, 16 requests per write", pipeline=16),
    "multiget-10": Scenario("gets of 10 keys", sets=0, multiget=10),
    "multiget-100": Scenario("gets of 100 keys", sets=0, multiget=100),
    "mb-sets": Scenario("sets of 1 MB: per operation is per MB", 0, 1, 1_000_000, keys=50),
    "mb-gets": Scenario("gets of 1 MB: per operation is per MB", 1, 0, 1_000_000, keys=50),
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one server in one round.

    Attributes:
        scenario: the name of the load.
        round: the number of the round, from 1.
        server: a contestant's name.
        cpu: the processor time of the server process.
        load: the output of the load generator.
    """

    scenario: str
    round: int
    server: str
    cpu: CpuSeconds
    load: Mapping[str, Any]

    @property
    def operations(self) -> float:
        """The number of operations that the server carried out."""
        return float(self.load["operations"])

    @property
    def microseconds_per_operation(self) -> float:
        """The server's CPU time per operation."""
        return 1e6 * self.cpu.total / self.operations

    @property
    def operations_per_second(self) -> float:
        """The throughput, which the load generator and other load on the machine limit as well."""
        return self.operations / float(self.load["seconds"])

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object for the results file."""
        return {
            "scenario": self.scenario,
            "round": self.round,
            "server": self.server,
            "cpu_seconds": self.cpu.total,
            "user_seconds": self.cpu.user,
            "system_seconds": self.cpu.system,
            "microseconds_per_operation": self.microseconds_per_operation,
            "operations_per_second": self.operations_per_second,
            "load": dict(self.load),
        }


def _generate(setting: Setting, port: int, arguments: Sequence[str]) -> dict[str, Any]:
    """Run the chosen load generator."""
    core = setting.cores[1]
    if setting.memtier:
        own = [one for one in arguments if not one.startswith("--seed=")]
        return memtier.generate(setting.memtier, port, core, setting.connections, own)
    return load(setting.loadgen, port, core, arguments)


def _loads(setting: Setting, name: str) -> tuple[list[str], list[str]]:
    """Return the arguments for storing all items, and those for the load itself."""
    scenario = SCENARIOS[name]
    if not setting.memtier:
        common = [f"--connections={setting.connections}", *scenario.arguments()]
        return [*common, "--prefill"], [*common, f"--seconds={setting.seconds}"]
    options = memtier.options(scenario.options())
    # Each key once, spread over all connections. memtier accepts only whole seconds.
    fill = [*options[1:5], "--ratio=1:0", "--key-pattern=P:P", "--requests=allkeys"]
    return fill, [
        *options,
        f"--test-time={max(1, round(setting.seconds))}",
        "--distinct-client-seed",
    ]


def measure(
    setting: Setting, name: str, turn: int, server: str, where: Running, arguments: Sequence[str]
) -> Measurement:
    """Load a server once; `arguments` are the load generator's options.

    Raises:
        BenchError: it failed, or was too short to measure processor time.
    """
    before = cpu_seconds(where.pid)
    printed = _generate(setting, where.port, [*arguments, f"--seed={turn}"])
    used = cpu_seconds(where.pid).since(before)
    if used.total <= 0:
        raise BenchError(f"{name}: no processor time was measured for {server}; use more --seconds")
    return Measurement(name, turn, server, used, printed)


def compare(setting: Setting, name: str) -> list[Measurement]:
    """Run all rounds of a scenario, on fresh servers."""
    fill, arguments = _loads(setting, name)
    found = []
    with ExitStack() as stack:
        servers = {
            one.name: stack.enter_context(one.running(setting.cores[0], _MEGABYTES))
            for one in setting.contestants
        }
        for server in servers.values():
            _generate(setting, server.port, fill)
        for turn in range(1, setting.rounds + 1):
            progress(f"{name}: round {turn} of {setting.rounds}")
            found += [
                measure(setting, name, turn, which, servers[which], arguments)
                for which in in_turn(list(servers), turn)
            ]
    return found


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a scenario on a server: medians over its rounds.

    Attributes:
        scenario: its name.
        server: a contestant's name.
        microseconds: CPU time per operation.
        user: the part of it outside the kernel.
        system: the part of it in the kernel.
        efficiency: memcached's CPU per operation divided by this server's, within a round.
        rate: operations per second.
        rate_ratio: this server's divided by memcached's, within a round.
    """

    scenario: str
    server: str
    microseconds: float
    user: float
    system: float
    efficiency: float
    rate: float
    rate_ratio: float


def costs(measurements: Sequence[Measurement]) -> list[Cost]:
    """Return a scenario's medians for each server; the first is the reference."""
    by_server: dict[str, list[Measurement]] = {}
    for one in sorted(measurements, key=lambda one: one.round):
        by_server.setdefault(one.server, []).append(one)
    peers = by_server[measurements[0].server]
    median = statistics.median
    return [
        Cost(
            scenario=rounds[0].scenario,
            server=server,
            microseconds=median(one.microseconds_per_operation for one in rounds),
            user=median(1e6 * one.cpu.user / one.operations for one in rounds),
            system=median(1e6 * one.cpu.system / one.operations for one in rounds),
            efficiency=median(
                peer.microseconds_per_operation / one.microseconds_per_operation
                for peer, one in zip(peers, rounds, strict=True)
            ),
            rate=median(one.operations_per_second for one in rounds),
            rate_ratio=median(
                one.operations_per_second / peer.operations_per_second
                for peer, one in zip(peers, rounds, strict=True)
            ),
        )
        for server, rounds in by_server.items()
    ]
