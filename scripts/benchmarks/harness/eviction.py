"""The cost of a set that must evict another item, compared with one that need not."""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from harness.contestants import Contestant, in_turn
from harness.processes import BenchError, Running, load, progress
from harness.scenarios import Measurement, Setting, measure
from harness.wire import Wire

__all__ = ["EVICTING", "ROOMY", "EvictionCost", "compare_eviction", "eviction_costs"]

EVICTING: Final = "evicting"
ROOMY: Final = "not evicting"
_KEY_SIZE: Final = 12
_VALUE_SIZE: Final = 100
# Enough room for all items, even if each takes eight times the bytes of its key and value.
_ROOMY_TIMES: Final = 32
_WORKING_SET_TIMES: Final = 4


@dataclass(frozen=True, slots=True)
class EvictionCost:
    """Medians over the rounds, or sums where noted.

    Attributes:
        server: a contestant's name.
        evicting: microseconds of CPU per set that evicts.
        roomy: microseconds of CPU per set of the same keys with room for all of them.
        ratio: `evicting` divided by `roomy`, within a round.
        evictions: evictions per set in the rounds that evict.
        refused: the sum of sets refused for lack of memory in these rounds.
        sets: the sum of sets in these rounds.
    """

    server: str
    evicting: float
    roomy: float
    ratio: float
    evictions: float
    refused: int
    sets: int


def compare_eviction(setting: Setting, megabytes: int) -> list[Measurement]:
    """Set random keys, four times as many as a budget holds, with that budget and a large one.

    Keys and values alone amount to four times the budget, without the overhead of items.

    Raises:
        BenchError: a server did not evict with the small budget, or evicted with the large one.
    """
    keys = _WORKING_SET_TIMES * megabytes * 2**20 // (_KEY_SIZE + _VALUE_SIZE)
    common = [f"--keys={keys}", f"--value-size={_VALUE_SIZE}", "--gets=0", "--sets=1"]
    arguments = [*common, f"--connections={setting.connections}", f"--seconds={setting.seconds}"]
    found: list[Measurement] = []
    # One contestant at a time: the items of all of them together would take gigabytes.
    for contestant in setting.contestants:
        with ExitStack() as stack:
            servers = _filled(setting, stack, contestant, megabytes, common)
            for turn in range(1, setting.rounds + 1):
                progress(f"eviction: {contestant.name}, round {turn} of {setting.rounds}")
                for kind in in_turn(list(servers), turn):
                    before = _evictions(servers[kind])
                    options = [*arguments, *_allowed(setting, contestant, kind)]
                    one = measure(setting, kind, turn, contestant.name, servers[kind], options)
                    evictions = _evictions(servers[kind]) - before
                    one = replace(one, load={**one.load, "evictions": evictions, "keys": keys})
                    if (evictions > 0) != (kind == EVICTING):
                        raise BenchError(
                            f"{contestant.name}, {kind}: {evictions} items evicted"
                            f" by {one.operations:.0f} sets"
                        )
                    found.append(one)
    return found


def _filled(
    setting: Setting,
    stack: ExitStack,
    contestant: Contestant,
    megabytes: int,
    arguments: Sequence[str],
) -> dict[str, Running]:
    """Run a contestant with each of the budgets, and store every key once."""
    servers = {}
    for kind, budget in ((EVICTING, megabytes), (ROOMY, _ROOMY_TIMES * megabytes)):
        progress(f"eviction: {contestant.name}, filling")
        server = stack.enter_context(contestant.running(setting.cores[0], budget))
        # Many per write: 16 took minutes on a busy machine.
        fill = [*arguments, "--prefill", "--pipeline=100", "--connections=4"]
        fill += _allowed(setting, contestant, kind)
        load(setting.loadgen, server.port, setting.cores[1], fill)
        servers[kind] = server
    return servers


def _allowed(setting: Setting, contestant: Contestant, kind: str) -> list[str]:
    """Tolerate refused sets of memcached, which sometimes cannot evict fast enough."""
    peer = setting.contestants[0]
    return ["--refusals"] if contestant is peer and kind == EVICTING else []


def _evictions(server: Running) -> int:
    with Wire(server.port) as wire:
        return int(wire.stats()["evictions"])


def eviction_costs(measurements: Sequence[Measurement]) -> list[EvictionCost]:
    """Return the medians of each server."""
    by_server: dict[str, dict[str, list[Measurement]]] = {}
    for one in sorted(measurements, key=lambda one: one.round):
        by_server.setdefault(one.server, {}).setdefault(one.scenario, []).append(one)
    median = statistics.median
    return [
        EvictionCost(
            server=server,
            evicting=median(one.microseconds_per_operation for one in kinds[EVICTING]),
            roomy=median(one.microseconds_per_operation for one in kinds[ROOMY]),
            ratio=median(
                one.microseconds_per_operation / other.microseconds_per_operation
                for one, other in zip(kinds[EVICTING], kinds[ROOMY], strict=True)
            ),
            evictions=median(one.load["evictions"] / one.operations for one in kinds[EVICTING]),
            refused=sum(one.load["refused"] for one in kinds[EVICTING]),
            sets=sum(one.load["sets"] for one in kinds[EVICTING]),
        )
        for server, kinds in by_server.items()
    ]
