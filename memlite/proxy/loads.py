"""Detection of hot keys, from nodes' reports or the proxy's own samples."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

__all__ = ["Load", "hot", "loads_of", "worth_it"]

_LEAST_SAMPLES: Final = 20
# A change costs about three requests at each node. These must not add more than a third.
_READS_PER_CHANGE: Final = 10


@dataclass(slots=True)
class Load:
    """The load of one key.

    Attributes:
        share: its requests, in percent of the requests of an average node.
        reads: reads per second.
        changes: changes per second.
    """

    share: float = 0.0
    reads: float = 0.0
    changes: float = 0.0


def loads_of(
    reports: Sequence[Mapping[str, str]], nodes: int, promoted: Container[bytes] = ()
) -> dict[bytes, Load]:
    """Return the loads of the reported keys.

    Args:
        reports: ``stats hotkeys`` of all nodes, or of a proxy, which does not know about copies.
        nodes: how many nodes there are.
        promoted: keys that have copies, whose changes the nodes count several times.
    """
    loads: dict[bytes, Load] = {}
    total = sum(_number(report, "hotkeys:per_second") for report in reports)
    for report in reports:
        least = _LEAST_SAMPLES * _number(report, "hotkeys:sample_interval")
        rank = 0
        while f"hotkeys:{(rank := rank + 1)}:key" in report:
            name = f"hotkeys:{rank}:"
            requests = _number(report, name + "requests")
            certain = requests - _number(report, name + "error")
            key = unquote_to_bytes(report[name + "key"])
            if not requests or (certain < least and key not in promoted):
                continue
            rate = _number(report, name + "per_second") * certain / requests
            changes = rate * min(_number(report, name + "changes") / requests, 1)
            load = loads.setdefault(key, Load())
            load.changes += changes
            load.reads += rate - changes
    for key, load in loads.items():
        if key in promoted:
            # One change is three requests for each copy, of which one is a read.
            load.changes /= 2 * nodes - 1
            load.reads = max(load.reads - load.changes * (nodes - 1), 0.0)
        load.share = 100 * nodes * (load.reads + load.changes) / total if total else 0.0
    return loads


def worth_it(load: Load, nodes: int, *, promoted: bool) -> bool:
    """Return whether a key is read so much more often than changed that copies pay off.

    Args:
        load: the load of the key.
        nodes: how many nodes there are.
        promoted: whether the key is promoted already; then half as often is enough.
    """
    needed = _READS_PER_CHANGE * nodes * load.changes
    return load.reads >= (needed / 2 if promoted else needed)


def hot(loads: Mapping[bytes, Load], nodes: int, percent: float) -> list[bytes]:
    """Return the keys that are worth a promotion, the hottest first.

    Args:
        loads: the loads of some keys.
        nodes: how many nodes there are.
        percent: the least share of an average node's requests.
    """
    found = [
        key
        for key, load in loads.items()
        if load.share >= percent and worth_it(load, nodes, promoted=False)
    ]
    return sorted(found, key=lambda key: -loads[key].share)


def _number(report: Mapping[str, str], name: str) -> float:
    try:
        return float(report.get(name, ""))
    except ValueError:
        return 0.0
