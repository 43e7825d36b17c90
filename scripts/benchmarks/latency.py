"""Response times at half of each server's own capacity, in open loop.

What spoils them is that a core does something else for a moment: a few milliseconds, a hundred
times the response time, after which the server has to catch up. So servers and load run before all
other processes where that is allowed; rounds are so short that most have no such moment, and many,
so that medians pass over those that have one; and a round in which the load generator noticed one
on its own core does not count.
"""

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from benchmarks.contestants import in_turn
from benchmarks.processes import load, progress
from benchmarks.scenarios import SCENARIOS, Measurement, Setting, measure

__all__ = [
    "CAPACITY",
    "HALF",
    "LATE",
    "ROUND_SECONDS",
    "ResponseTimes",
    "compare_latency",
    "response_times",
    "rounds_that_count",
]

CAPACITY: Final = "capacity"
HALF: Final = "half-load"
ROUND_SECONDS: Final = 0.25
# Microseconds. The p99 of the load generator's lateness is a third of this where its core is its
# own, as long as it takes to send and receive some requests; and ten times as much where it is not.
LATE: Final = 100
_LOAD: Final = "get-set"
_MEGABYTES: Final = 1024
# Between measurements, so that no core is busy for the whole of a second; see real_time().
_REST_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class ResponseTimes:
    """Medians over the rounds that count.

    Attributes:
        server: a contestant's name.
        capacity: operations per second in closed loop.
        rate: operations per second that were carried out in open loop, half of that.
        p50: microseconds from when a request was due to its reply.
        p99: likewise.
        ratio: this server's p99 divided by memcached's, within a round.
        late: the p99 of how many microseconds late the load generator itself was.
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
    Rounds take `ROUND_SECONDS` per server and measurement, and there are as many as make up the
    time that the setting says. For those that do not count there are others, up to that number.
    """
    common = [f"--connections={setting.connections}", *SCENARIOS[_LOAD].arguments()]
    timed = [*common, f"--seconds={ROUND_SECONDS}"]
    wanted = max(1, round(setting.rounds * setting.seconds / ROUND_SECONDS))
    found: list[Measurement] = []
    with ExitStack() as stack:
        servers = {
            one.name: stack.enter_context(one.running(setting.cores[0], _MEGABYTES))
            for one in setting.contestants
        }
        for server in servers.values():
            load(setting.loadgen, server.port, setting.cores[1], [*common, "--prefill"])
        for turn in range(1, 2 * wanted + 1):
            count = len(rounds_that_count(found))
            if count == wanted:
                break
            progress(f"{HALF}: round {turn}, {count} of {wanted} count")
            for which in in_turn(list(servers), turn):
                time.sleep(_REST_SECONDS)
                closed = measure(setting, CAPACITY, turn, which, servers[which], timed)
                time.sleep(_REST_SECONDS)
                half = f"--rate={closed.operations_per_second / 2:.0f}"
                opened = measure(setting, HALF, turn, which, servers[which], [*timed, half])
                found += [closed, opened]
    return found


def rounds_that_count(measurements: Sequence[Measurement]) -> set[int]:
    """Return the rounds in which the load generator was in time, with every server."""
    late = {
        one.round for one in measurements if one.scenario == HALF and one.load["late_p99_us"] > LATE
    }
    return {one.round for one in measurements} - late


def response_times(measurements: Sequence[Measurement]) -> list[ResponseTimes]:
    """Return the medians of one server after the other; the first is the peer.

    Where no round counts, they are those of all.
    """
    rounds = rounds_that_count(measurements) or {one.round for one in measurements}
    by_server: dict[str, dict[str, list[Measurement]]] = {}
    for one in sorted(measurements, key=lambda one: one.round):
        kinds = by_server.setdefault(one.server, {CAPACITY: [], HALF: []})
        if one.round in rounds:
            kinds[one.scenario].append(one)
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
            late=median(one.load["late_p99_us"] for one in kinds[HALF]),
        )
        for server, kinds in by_server.items()
    ]
