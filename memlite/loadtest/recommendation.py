"""Recommend a backend for a workload, by speed, durability, sharing and cost."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.backends.promises import Promise, promise_of
from memlite.loadtest import selection
from memlite.loadtest.doubt import NO_DIFFERENCE, Comparison, compare
from memlite.loadtest.prices import Cost
from memlite.loadtest.results import Latency, Point, Results
from memlite.loadtest.units import duration, grouped, money

__all__ = ["Choice", "choices", "recommendation"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A target to choose from.

    Attributes:
        target: its name.
        promise: the promise of its backend.
        point: the measurement at which it saturates, or its highest load.
        cost: cost of a million operations, in the currency of the prices; None if unknown.
    """

    target: str
    promise: Promise
    point: Point
    cost: float | None

    @property
    def p99(self) -> float:
        """The 99th percentile of response times, in microseconds."""
        return self.point.response.get("all", Latency()).p99


_SAME_COST: Final = 1.1
"""A cost of at most this many times another counts as equal."""

_NEEDS: Final[Sequence[tuple[str, Callable[[Promise], bool]]]] = (
    ("a cold cache after a crash is acceptable", lambda _: True),
    ("items must survive a crash", lambda promise: promise.survives_crash),
    ("several servers must share items", lambda promise: promise.shared),
    ("items must survive the loss of the machine", lambda promise: promise.survives_machine),
)
"""Possible requirements for a backend, each with a test of its promise."""


def choices(results: Results, costs: Sequence[Cost]) -> list[Choice]:
    """Return the targets to choose from, the fastest first.

    Args:
        results: the measurements. Only targets measured in a closed loop whose backend makes a
            known promise count: the durability of an already running server is unknown.
        costs: costs of the targets.
    """
    if selection.is_concurrent(results):
        return []
    points = selection.with_main_value_size(selection.closed_loop(results))
    totals = {cost.target: cost.total for cost in costs}
    promises: Mapping[str, Promise | None] = {
        target.name: promise_of(target.kind) for target in results.targets
    }
    found = []
    for name, of_target in selection.by_target(results, points).items():
        promise, point = promises.get(name), selection.saturation(of_target)
        if promise is not None and point.throughput.mean:
            found.append(Choice(name, promise, point, totals.get(name)))
    return sorted(found, key=lambda choice: -choice.point.throughput.mean)


def recommendation(available: Sequence[Choice], currency: str) -> list[str]:
    """Return the target recommended for each requirement, as sentences.

    Args:
        available: targets, as returned by `choices`.
        currency: currency of the costs.

    Returns:
        The sentences; empty if there is no choice, or if all targets make the same promise.
    """
    if len({choice.promise for choice in available}) < 2:
        return []
    return list(_sentences(available, currency))


def _sentences(available: Sequence[Choice], currency: str) -> Iterator[str]:
    before: Choice | None = None
    for need, meets in _NEEDS:
        choice = next((one for one in available if meets(one.promise)), None)
        if choice is None:
            yield f"If {need}, none of these is suitable."
        elif before is None:
            choice, reason = _at_no_cost(choice, available)
            facts = [f"{grouped(choice.point.throughput.mean)} operations per second"]
            yield f"If {need}, use {choice.target}{reason}: {_facts(choice, facts, currency)}."
        elif choice.target == before.target:
            yield f"If {need}, {choice.target} is still the best choice."
        else:
            facts = [_beside(choice, available[0])]
            yield f"If {need}, use {choice.target}: {_facts(choice, facts, currency)}."
        before = choice or before


def _at_no_cost(fastest: Choice, available: Sequence[Choice]) -> tuple[Choice, str]:
    """Return a target that promises more than the fastest one and is not measurably slower."""
    for one in available:
        more = one.promise.survives_crash and not fastest.promise.survives_crash
        if more and not _is_dearer(one, fastest) and _compared(one, fastest).doubt == NO_DIFFERENCE:
            text = f", which survives a crash and is not measurably slower than {fastest.target}"
            return one, text
    return fastest, ""


def _is_dearer(one: Choice, other: Choice) -> bool:
    return one.cost is not None and other.cost is not None and one.cost > _SAME_COST * other.cost


def _compared(slower: Choice, faster: Choice) -> Comparison:
    return compare(slower.point, faster.point, lambda one: one.throughput)


def _beside(choice: Choice, fastest: Choice) -> str:
    compared = _compared(choice, fastest)
    if compared.doubt == NO_DIFFERENCE:
        return f"no measurable difference in throughput from {fastest.target}"
    if compared.doubt:
        return f"relative throughput is unknown ({compared.doubt})"
    return f"{compared.times('at most')} the throughput of {fastest.target}"


def _facts(choice: Choice, facts: list[str], currency: str) -> str:
    if choice.p99:
        facts.append(f"99 of 100 responses within {duration(choice.p99)}")
    if choice.cost is not None:
        facts.append(f"{money(choice.cost, currency)} per million operations")
    return ", ".join(facts)
