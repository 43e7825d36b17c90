"""Response times at half of each server's own capacity, in open loop.

The main disturbance is a core doing something else for a moment: a few milliseconds, a hundred
times the response time, after which the server has to catch up. Therefore servers and load
generator run with priority over all other processes, where permitted; rounds are short, so that
most are undisturbed, and numerous, so that medians ignore the others; and a round in which the
load generator noticed a disturbance on its own core does not count.
"""

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from harness.contestants import in_turn
from harness.processes import load, progress
from harness.scenarios import SCENARIOS, Measurement, Setting, measure

__all__ = [
    "CAPACITY",
    "HALF",
    "ROUND_SECONDS",
    "ResponseTimes",
    "compare_latency",
    "late_limit",
    "response_times",
    "rounds_that_count",
]

CAPACITY: Final = "capacity"
HALF: Final = "half-load"
ROUND_SECONDS: Final = 0.25
# Microseconds. The p99 of the load generator's lateness is a third of this on an undisturbed core
# (the time to send and receive a few requests), and ten times as much on a disturbed one.
_LATE: Final = 100
# Microseconds. Sending a megabyte takes several hundred, and other requests become due meanwhile.
_LATE_PER_BYTE: Final = 0.001
_MEGABYTES: Final = 1024
# Pause between measurements, so that no core is busy for a full second; see real_time().
_REST_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class ResponseTimes:
    """Medians over the rounds that count.

    Attributes:
        server: a contestant's name.
        capacity: operations per second in closed loop.
        rate: operations per second in open loop: half of that.
        p50: the median response time in microseconds, from when a request was due.
        p99: the 99th percentile of the response time, likewise.
        ratio: this server's p99 divided by memcached's, within a round.
        late: the 99th percentile of the load generator's own lateness, in microseconds.
    """

    server: str
    capacity: float
    rate: float
    p50: float
    p99: float
    ratio: float
    late: float


def late_limit(name: str) -> float:
    """Return the lateness, in microseconds at p99, beyond which a round of a scenario is void."""
    return _LATE + _LATE_PER_BYTE * SCENARIOS[name].value_size


def compare_latency(setting: Setting, name: str) -> list[Measurement]:
    """Measure each server's capacity, then its response times at half of it, in each round.

    The load is that of the scenario `name`.

    Requests are due at random times (a Poisson process) that do not depend on the server's replies.
    Rounds take `ROUND_SECONDS` per server and measurement; their number follows from the total time
    in the setting. Rounds that do not count are repeated, up to as many times again.
    """
    common = [f"--connections={setting.connections}", *SCENARIOS[name].arguments()]
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
            count = len(rounds_that_count(found, late_limit(name)))
            if count == wanted:
                break
            progress(f"{HALF}, {name}: round {turn}, {count} of {wanted} count")
            for which in in_turn(list(servers), turn):
                time.sleep(_REST_SECONDS)
                closed = measure(setting, CAPACITY, turn, which, servers[which], timed)
                time.sleep(_REST_SECONDS)
                half = f"--rate={closed.operations_per_second / 2:.0f}"
                opened = measure(setting, HALF, turn, which, servers[which], [*timed, half])
                found += [closed, opened]
    return found


def rounds_that_count(measurements: Sequence[Measurement], limit: float = _LATE) -> set[int]:
    """Return the rounds in which the load generator was on time with every server.

    Args:
        measurements: all of one load.
        limit: its `late_limit`.
    """
    late = {
        one.round
        for one in measurements
        if one.scenario == HALF and one.load["late_p99_us"] > limit
    }
    return {one.round for one in measurements} - late


def response_times(
    measurements: Sequence[Measurement], limit: float = _LATE
) -> list[ResponseTimes]:
    """Return the medians of each server; the first is the reference.

    If no round counts, all rounds are used. The arguments are those of `rounds_that_count`.
    """
    rounds = rounds_that_count(measurements, limit) or {one.round for one in measurements}
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
