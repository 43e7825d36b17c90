"""The answer to a plan, as text and as plain data."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memlite.backends.promises import promise_of
from memlite.core.errors import ConfigError
from memlite.loadtest.capacity.estimate import Estimate, Range, estimate
from memlite.loadtest.capacity.machine_count import Machines, cheapest, extra_costs
from memlite.loadtest.capacity.measured import MODEL_ERROR
from memlite.loadtest.capacity.request import Request, UnknowableError
from memlite.loadtest.machines import MachineTable
from memlite.loadtest.prices import Prices
from memlite.loadtest.results import Results, TargetInfo
from memlite.loadtest.units import money, percent, size

__all__ = ["Answer", "Option", "answer"]


@dataclass(frozen=True, slots=True)
class Option:
    """A kind of server that could take the load.

    Attributes:
        target: its name.
        estimate: how many servers are needed; None if the measurement does not tell.
        servers: the number of servers, or nodes, including those needed only for memory; None
            likewise.
        reason: why there is no estimate; empty if there is one.
        machines: the cheapest machines; None if the table has none that can be used.
        month: the price per month, including disks and use of a bucket; None without machines.
    """

    target: str
    estimate: Estimate | None
    servers: Range | None
    reason: str
    machines: Machines | None
    month: Range | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.

    Attributes:
        request: the request.
        options: by target, in the order of the results.
        currency: the currency of the prices.
        doubts: reasons to doubt the measurement, in sentences.
        advice: which option to take, in sentences.
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
        """Return the answer as JSON-serializable data."""
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
    """Answer a request for all targets of some runs that were measured in the same way.

    Args:
        runs: one or more.
        request: the load.
        table: the machines to choose from.
        prices: the prices of disks and buckets.

    Raises:
        ConfigError: the tables have different currencies.
    """
    if table.currency != prices.currency:
        raise ConfigError(
            f"bench: prices of machines are in {table.currency}, but those of disks and buckets in "
            f"{prices.currency}: use tables with the same currency"
        )
    options = [
        _option(name, run, target, request, table, prices) for name, run, target in _named(runs)
    ]
    possible = [one for one in options if one.estimate is not None]
    return Answer(
        request,
        options,
        table.currency,
        list(_doubts(possible)),
        list(_advice(possible, table.currency)),
        list(_basis(possible)),
        list(_wrong_if(possible, runs[0], request, prices)) if possible else [],
    )


def _named(runs: Sequence[Results]) -> Iterator[tuple[str, Results, TargetInfo]]:
    """Yield all targets; a name shared by several runs gets the options of its run."""
    count = Counter(target.name for run in runs for target in run.targets)
    for run in runs:
        made = [word.lstrip("-") for word in run.command if word.startswith(_TELLING)]
        for target in run.targets:
            several = count[target.name] > 1 and made
            yield f"{target.name} ({', '.join(made)})" if several else target.name, run, target


def _option(
    name: str,
    run: Results,
    target: TargetInfo,
    request: Request,
    table: MachineTable,
    prices: Prices,
) -> Option:
    try:
        found = estimate(run, target, request)
    except UnknowableError as error:
        return Option(name, None, None, str(error), None, None)
    machines = cheapest(found, request, table)
    if machines is None:
        return Option(name, found, found.servers, "", None, None)
    more = extra_costs(found, request, prices, machines.count)
    month = Range(machines.month.low + more.low, machines.month.high + more.high)
    servers = found.servers
    if machines.memory:  # a server uses the memory of its own machine
        low, high = machines.count.low - found.proxies.low, machines.count.high - found.proxies.high
        servers = Range(max(servers.low, low, 1), max(servers.high, high))
    if servers.high > _MAX_SERVERS:
        reason = f"its items would need the memory of up to {servers.high:,.0f} servers"
        return Option(name, None, None, reason, None, None)
    return Option(name, found, servers, "", machines, month)


_TELLING = ("--in-flight=", "--proxy-option=")
"""Options that distinguish a run from others with the same target."""
_MAX_SERVERS = 1000

_NEEDS = (
    (
        "a cold cache after a crash is acceptable",
        ("memory", "file", "gcs", "valkey", "cluster", "server"),
    ),
    ("items must survive a crash", ("file", "gcs", "valkey")),
    ("several servers must share items", ("gcs", "valkey")),
    ("items must survive the loss of a machine", ("gcs",)),
)


def _doubts(possible: Sequence[Option]) -> Iterator[str]:
    """Yield each doubt once, with the targets it concerns."""
    about: dict[str, list[str]] = {}
    for option in possible:
        for doubt in _estimate(option).measured.doubts:
            about.setdefault(doubt, []).append(option.target)
    for doubt, targets in about.items():
        yield f"{', '.join(targets)}: {doubt}"


def _advice(possible: Sequence[Option], currency: str) -> Iterator[str]:
    """Yield which option to choose for which purpose."""
    if not possible:
        yield "no estimate is possible for any of the measured targets"
        return
    for need, kinds in _NEEDS:
        able = [one for one in possible if _kind(one) in kinds]
        if not able:
            yield f"if {need}: none of the measured targets"
            continue
        best = min(able, key=lambda one: (_cost(one), _estimate(one).servers.high))
        text = f"if {need}: {best.target}, {_what(best, currency)}"
        as_good = [one.target for one in able if one is not best and _may_beat(one, best)]
        if as_good:
            text += f"; {', '.join(as_good)} may cost no more"
        yield text


def _kind(option: Option) -> str:
    target = _estimate(option).measured.target
    return (
        "gcs" if promise_of(target.kind) == promise_of("gcs") else _estimate(option).measured.kind
    )


def _estimate(option: Option) -> Estimate:
    assert option.estimate is not None  # noqa: S101 - only possible options get here
    return option.estimate


def _cost(option: Option) -> float:
    return option.month.high if option.month is not None else float("inf")


def _may_beat(one: Option, best: Option) -> bool:
    """Return whether an option may cost no more than the best one, as far as is known."""
    if one.month is None or best.month is None:
        return False
    return one.month.low <= best.month.high


def _what(option: Option, currency: str) -> str:
    found = _estimate(option)
    assert option.servers is not None  # noqa: S101 - it has an estimate
    text = _count(option.servers, "server", "servers")
    if found.measured.parts:
        workers = max(part.workers for part in found.measured.parts)
        text += f" of {_count(Range(workers, workers), 'worker', 'workers')}"
    if found.proxies.high:
        text += f" and {_count(found.proxies, 'proxy', 'proxies')}"
    if option.machines is not None and option.month is not None:
        machines = _count(option.machines.count, *[option.machines.machine.name] * 2)
        months = [money(one, currency) for one in dict.fromkeys(asdict(option.month).values())]
        why = " (as many as memory requires)" if option.machines.memory else ""
        text += f", on {machines}{why}, {' to '.join(months)} a month"
    return text


def _count(number: Range, one: str, several: str) -> str:
    if number.low == number.high:
        return f"{number.low:.0f} {one if number.low == 1 else several}"
    return f"{number.low:.0f} to {number.high:.0f} {several}"


_PLURALS = {"server": "servers", "node": "nodes", "proxy": "proxies"}


def _basis(possible: Sequence[Option]) -> Iterator[str]:
    """Yield the model that each option is based on, and how far it extrapolates."""
    for option in possible:
        found = _estimate(option)
        known = found.measured
        if known.model_error is None:
            model = "without a model, from the measured throughput alone"
        elif known.fits:
            names = " and ".join(_PLURALS[part.name] for part in known.parts)
            model = (
                f"M/M/{known.parts[-1].workers} for its {names}, off by at most "
                f"{percent(known.model_error)} where it was measured"
            )
        else:
            model = (
                f"from the measured throughput alone, as the model is off by up to "
                f"{percent(known.model_error)}, more than the allowed {percent(MODEL_ERROR)}"
            )
        far = (
            "no extrapolation"
            if found.extrapolation <= 1
            else f"{found.extrapolation:.1f} times the measured size"
        )
        busy = ""
        if found.utilisation is not None:
            shares = dict.fromkeys(map(percent, asdict(found.utilisation).values()))
            busy = f" A server is busy for {' to '.join(shares)} of the time."
        yield f"{option.target}: {model}; {far}. The bottleneck is {found.bottleneck}.{busy}"


def _wrong_if(
    possible: Sequence[Option], results: Results, request: Request, prices: Prices
) -> Iterator[str]:
    cpu = results.machine.get("cpu", "this one")
    yield f"the machines' cores are slower than those of the measurement ({cpu})"
    if any(_estimate(one).servers.high > _estimate(one).measured.servers for one in possible):
        yield (
            "requests are spread over the servers less evenly than ketama spreads the workload's "
            "keys, or servers wait for each other"
        )
    yield "the network between clients and servers is slower than in the measurement"
    yield "requests arrive in bursts: random arrivals are assumed"
    yield f"the mix of operations or the popularity of keys differs from {_workload(results)}"
    sizes = {_estimate(one).measured.saturated.value_size for one in possible}
    if request.value_size is not None and sizes != {float(request.value_size)}:
        measured = ", ".join(size(one) for one in sorted(sizes))
        yield f"values of {size(request.value_size)} cost more than those of {measured}"
    yield "a server fails: add one for each failure to tolerate"
    yield (
        f"prices differ from those of {prices.name} as of {prices.date}; network traffic and "
        "bucket storage are not included"
    )


def _workload(results: Results) -> str:
    return f"the workload {results.workload.get('name', '')!r}"


def _as_dict(option: Option) -> dict[str, Any]:
    found = option.estimate
    if found is None:
        return {"target": option.target, "unknown": option.reason}
    return {
        "target": option.target,
        "servers": asdict(option.servers or found.servers),
        "proxies": asdict(found.proxies),
        "workers": max((part.workers for part in found.measured.parts), default=None),
        "each": asdict(found.each),
        "utilisation": None if found.utilisation is None else asdict(found.utilisation),
        "bottleneck": found.bottleneck,
        "model_error": found.measured.model_error,
        "extrapolation": found.extrapolation,
        "machine": None if option.machines is None else option.machines.machine.name,
        "machines": None if option.machines is None else asdict(option.machines.count),
        "month": None if option.month is None else asdict(option.month),
    }
