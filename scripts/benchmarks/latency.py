"""Response times at half of each server's own capacity, in open loop."""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from benchmarks.contestants import in_turn
from benchmarks.processes import load, progress
from benchmarks.scenarios import SCENARIOS, Measurement, Setting, measure

__all__ = ["CAPACITY", "HALF", "ResponseTimes", "compare_latency", "response_times"]

CAPACITY: Final = "capacity"
HALF: Final = "half-load"
_LOAD: Final = "get-set"
_MEGABYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class ResponseTimes:
    """Medians over the rounds.

    Attributes:
        server: a contestant's name.
        capacity: operations per second in closed loop.
        rate: operations per second that were carried out in open loop, half of that.
        p50: microseconds from when a request was due to its reply.
        p99: likewise.
        ratio: this server's p99 divided by memcached's, within a round.
        late: microseconds that the load generator itself was late at worst.
    """

    server: str
    capacity: float
    rate: float
    p50: float
    p99: float
    ratio: float
    late: float


def compare_latency(setting: Setting) -> list[Measurement]:
    """Measure each server's capacity, then its response times at half of it, in each round.

    Requests are due at random times (a Poisson process) that do not depend on the server's replies.
    """
    common = [f"--connections={setting.connections}", *SCENARIOS[_LOAD].arguments()]
    timed = [*common, f"--seconds={setting.seconds}"]
    found = []
    with ExitStack() as stack:
        servers = {
            one.name: stack.enter_context(one.running(setting.cores[0], _MEGABYTES))
            for one in setting.contestants
        }
        for server in servers.values():
            load(setting.loadgen, server.port, setting.cores[1], [*common, "--prefill"])
        for turn in range(1, setting.rounds + 1):
            progress(f"{HALF}: round {turn} of {setting.rounds}")
            for which in in_turn(list(servers), turn):
                closed = measure(setting, CAPACITY, turn, which, servers[which], timed)
                half = f"--rate={closed.operations_per_second / 2:.0f}"
                opened = measure(setting, HALF, turn, which, servers[which], [*timed, half])
                found += [closed, opened]
    return found


def response_times(measurements: Sequence[Measurement]) -> list[ResponseTimes]:
    """Return the medians of one server after the other; the first is the peer."""
    by_server: dict[str, dict[str, list[Measurement]]] = {}
    for one in sorted(measurements, key=lambda one: one.round):
        by_server.setdefault(one.server, {}).setdefault(one.scenario, []).append(one)
    peers = by_server[measurements[0].server][HALF]
    median = statistics.median
    return [
        ResponseTimes(
            server=server,
            capacity=median(one.operations_per_second for one in kinds[CAPACITY]),
            rate=median(one.operations_per_second for one in kinds[HALF]),
            p50=median(one.load["p50_us"] for one in kinds[HALF]),
            p99=median(one.load["p99_us"] for one in kinds[HALF]),
            ratio=median(
                one.load["p99_us"] / peer.load["p99_us"]
                for peer, one in zip(peers, kinds[HALF], strict=True)
            ),
            late=median(one.load["late_us"] for one in kinds[HALF]),
        )
        for server, kinds in by_server.items()
    ]
