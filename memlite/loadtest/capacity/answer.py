"""The answer to a plan: in words for people, and as plain data."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memlite.backends.promises import promise_of
from memlite.loadtest.capacity.estimate import Estimate, Range, estimate
from memlite.loadtest.capacity.machine_count import Machines, cheapest, extra_costs
from memlite.loadtest.capacity.measured import MODEL_ERROR
from memlite.loadtest.capacity.request import Request, UnknowableError
from memlite.loadtest.machines import MachineTable
from memlite.loadtest.prices import Prices
from memlite.loadtest.results import Results
from memlite.loadtest.units import money, percent, size

__all__ = ["Answer", "Option", "answer"]


@dataclass(frozen=True, slots=True)
class Option:
    """A kind of server that the load could be given to.

    Attributes:
        target: its name.
        estimate: how many are needed; None if the measurement does not tell.
        reason: why not; empty if it does.
        machines: the cheapest machines; None if the table has none that can be used.
        month: the price of a month, use of disks and of a bucket included; None without machines.
    """

    target: str
    estimate: Estimate | None
    reason: str
    machines: Machines | None
    month: Range | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.

    Attributes:
        request: what was asked.
        options: by target, in the order of the results.
        currency: of the prices.
        doubts: what speaks against the measurement, in sentences.
        advice: which to take, in sentences.
        basis: what the answer is based on, in sentences.
        wrong_if: what would make it wrong, each to follow "it is wrong if".
    """

    request: Request
    options: Sequence[Option]
    currency: str
    doubts: Sequence[str]
    advice: Sequence[str]
    basis: Sequence[str]
    wrong_if: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        return {
            "request": asdict(self.request),
            "currency": self.currency,
            "options": [_as_dict(option) for option in self.options],
            "doubts": list(self.doubts),
            "advice": list(self.advice),
            "basis": list(self.basis),
            "wrong_if": list(self.wrong_if),
        }


def answer(
    runs: Sequence[Results], request: Request, table: MachineTable, prices: Prices
) -> Answer:
    """Answer a request for all targets of some runs, which were measured in the same way.

    Args:
        runs: one or more.
        request: the load.
        table: the machines to choose from.
        prices: of disks and buckets.
    """
    options = []
    for results, target in ((run, target) for run in runs for target in run.targets):
        try:
            found = estimate(results, target, request)
        except UnknowableError as error:
            options.append(Option(target.name, None, str(error), None, None))
            continue
        machines = cheapest(found, request, table)
        month = None
        if machines is not None:
            more = extra_costs(found, request, prices, machines.count)
            month = Range(machines.month.low + more.low, machines.month.high + more.high)
        options.append(Option(target.name, found, "", machines, month))
    possible = [one for one in options if one.estimate is not None]
    return Answer(
        request,
        options,
        table.currency,
        list(_doubts(possible)),
        list(_advice(possible, table.currency)),
        list(_basis(possible)),
        list(_wrong_if(possible, runs[0], request)) if possible else [],
    )


_NEEDS = (
    ("a cold cache after a crash is acceptable", ("memory", "file", "gcs", "cluster", "server")),
    ("items must survive a crash", ("file", "gcs")),
    ("they must survive the loss of a machine, or several servers share them", ("gcs",)),
)


def _doubts(possible: Sequence[Option]) -> Iterator[str]:
    """Yield each doubt once, with the targets that it is about."""
    about: dict[str, list[str]] = {}
    for option in possible:
        for doubt in _estimate(option).measured.doubts:
            about.setdefault(doubt, []).append(option.target)
    for doubt, targets in about.items():
        yield f"{', '.join(targets)}: {doubt}"


def _advice(possible: Sequence[Option], currency: str) -> Iterator[str]:
    """Yield which option to take for what."""
    if not possible:
        yield "nothing that was measured can be planned for"
        return
    for need, kinds in _NEEDS:
        able = [one for one in possible if _kind(one) in kinds]
        if not able:
            yield f"if {need}: nothing that was measured"
            continue
        best = min(able, key=lambda one: (_cost(one), _estimate(one).servers.high))
        yield f"if {need}: {best.target}, {_what(best, currency)}"


def _kind(option: Option) -> str:
    target = _estimate(option).measured.target
    return "gcs" if promise_of(target.kind) == promise_of("gcs") else target.kind


def _estimate(option: Option) -> Estimate:
    assert option.estimate is not None  # noqa: S101 - only possible options get here
    return option.estimate


def _cost(option: Option) -> float:
    return option.month.high if option.month is not None else float("inf")


def _what(option: Option, currency: str) -> str:
    found = _estimate(option)
    workers = max((part.workers for part in found.measured.parts), default=1)
    of_each = _count(Range(workers, workers), "worker", "workers")
    text = f"{_count(found.servers, 'server', 'servers')} of {of_each}"
    if found.proxies.high:
        text += f" and {_count(found.proxies, 'proxy', 'proxies')}"
    if option.machines is not None and option.month is not None:
        machines = _count(option.machines.count, *[option.machines.machine.name] * 2)
        months = [money(one, currency) for one in dict.fromkeys(asdict(option.month).values())]
        text += f", on {machines}, {' to '.join(months)} a month"
    return text


def _count(number: Range, one: str, several: str) -> str:
    if number.low == number.high:
        return f"{number.low:.0f} {one if number.low == 1 else several}"
    return f"{number.low:.0f} to {number.high:.0f} {several}"


def _basis(possible: Sequence[Option]) -> Iterator[str]:
    """Yield which model is behind each option, and how far it extrapolates."""
    for option in possible:
        found = _estimate(option)
        known = found.measured
        if known.model_error is None:
            model = "without a model, from the measured throughput alone"
        elif known.fits:
            names = " and ".join(f"{part.name}s" for part in known.parts)
            model = (
                f"M/M/{known.parts[-1].workers} for its {names}, off by at most "
                f"{percent(known.model_error)} where it was measured"
            )
        else:
            model = (
                f"from the measured throughput alone, as the model is off by up to "
                f"{percent(known.model_error)}, more than {percent(MODEL_ERROR)}"
            )
        far = (
            "no extrapolation"
            if found.extrapolation <= 1
            else f"{found.extrapolation:.1f} times what was measured"
        )
        busy = ""
        if found.utilisation is not None:
            shares = dict.fromkeys(map(percent, asdict(found.utilisation).values()))
            busy = f" A server is busy for {' to '.join(shares)} of the time."
        yield f"{option.target}: {model}; {far}. The bottleneck is {found.bottleneck}.{busy}"


def _wrong_if(possible: Sequence[Option], results: Results, request: Request) -> Iterator[str]:
    cpu = results.machine.get("cpu", "this one")
    yield f"a core of the machines is not as fast as that of the measurement ({cpu})"
    if any(_estimate(one).servers.high > _estimate(one).measured.servers for one in possible):
        yield (
            "requests are spread over the servers less evenly than the workload's keys by ketama, "
            "or servers wait for each other"
        )
    yield "the network between clients and servers takes longer than it did in the measurement"
    yield "requests arrive in bursts: random arrivals are assumed"
    yield f"the mix of operations, or the popularity of keys, is not that of {_workload(results)}"
    sizes = {_estimate(one).measured.saturated.value_size for one in possible}
    if request.value_size is not None and sizes != {float(request.value_size)}:
        measured = ", ".join(size(one) for one in sorted(sizes))
        yield f"values of {size(request.value_size)} cost less than those of {measured}, as assumed"
    if any(_estimate(one).measured.servers == 1 for one in possible):
        yield "a server fails: there is one more to add for each that may"


def _workload(results: Results) -> str:
    return f"the workload {results.workload.get('name', '')!r}"


def _as_dict(option: Option) -> dict[str, Any]:
    found = option.estimate
    if found is None:
        return {"target": option.target, "unknown": option.reason}
    return {
        "target": option.target,
        "servers": asdict(found.servers),
        "proxies": asdict(found.proxies),
        "workers": max((part.workers for part in found.measured.parts), default=1),
        "each": asdict(found.each),
        "utilisation": None if found.utilisation is None else asdict(found.utilisation),
        "bottleneck": found.bottleneck,
        "model_error": found.measured.model_error,
        "extrapolation": found.extrapolation,
        "machine": None if option.machines is None else option.machines.machine.name,
        "machines": None if option.machines is None else asdict(option.machines.count),
        "month": None if option.month is None else asdict(option.month),
    }
