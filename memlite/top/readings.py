"""Figures computed from two readings of a server's statistics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

__all__ = ["Figures", "HotKey", "Reading", "figures", "hot_keys", "numbers", "totals"]

_OPERATIONS = (
    "cmd_get", "cmd_set", "cmd_touch", "delete_hits", "delete_misses", "incr_hits", "incr_misses",
    "decr_hits", "decr_misses",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HotKey:
    """A frequently requested key.

    Attributes:
        key: the key as the server shows it, URI-encoded.
        per_second: the estimated rate of requests for it.
        percent: its share of the server's requests.
    """

    key: str
    per_second: float
    percent: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A server's statistics at one moment.

    Attributes:
        at: when they were read, in seconds; only differences are meaningful.
        stats: ``stats``, by name.
        latency: ``stats latency``; empty if the server has no such group.
        hot_keys: the most frequently requested keys; empty if the server does not report them.
    """

    at: float
    stats: Mapping[str, str]
    latency: Mapping[str, str]
    hot_keys: Sequence[HotKey]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures shown for a server, or for all servers.

    Rates are per second, and sizes in bytes. Unknown figures are None.

    Attributes:
        operations: operations on keys; a get of several keys counts as several.
        gets: keys requested.
        sets: values sent.
        hits: keys found.
        latency: the 99th percentile of the server's time for a get since its start, in seconds.
        memory: memory used by items.
        memory_limit: memory that items may use.
        items: the number of items.
        evictions: items evicted.
        connections: open connections.
    """

    operations: float | None = None
    gets: float | None = None
    sets: float | None = None
    hits: float | None = None
    latency: float | None = None
    memory: float | None = None
    memory_limit: float | None = None
    items: float | None = None
    evictions: float | None = None
    connections: float | None = None

    @property
    def hit_ratio(self) -> float | None:
        """The share of requested keys that were found, 0 to 1."""
        return self.hits / self.gets if self.hits is not None and self.gets else None

    @property
    def memory_share(self) -> float | None:
        """The share of the memory limit that items use."""
        if self.memory is None or not self.memory_limit:
            return None
        return self.memory / self.memory_limit


# Counters end at 2**64; larger values would not fit into a column.
_LARGEST = 1e20
_NAMES = tuple(field.name for field in fields(Figures) if field.name != "latency")


def figures(before: Reading | None, now: Reading) -> Figures:
    """Return the figures of a server.

    Args:
        before: an earlier reading; None if there is none, which leaves rates unknown.
        now: the latest reading.
    """
    values = numbers(now.stats)
    earlier = None if before is None or _restarted(before, now) else before
    rates = _rates(earlier, now)
    return Figures(
        operations=_sum(rates.get(name) for name in _OPERATIONS),
        gets=rates.get("cmd_get"),
        sets=rates.get("cmd_set"),
        hits=rates.get("get_hits"),
        latency=_latency(now.latency),
        memory=values.get("bytes"),
        memory_limit=values.get("limit_maxbytes"),
        items=values.get("curr_items"),
        evictions=rates.get("evictions"),
        connections=values.get("curr_connections"),
    )


def totals(found: Sequence[Figures]) -> Figures:
    """Return the sums of several servers' figures; the latency is the highest."""
    sums = {name: _sum(getattr(one, name) for one in found) for name in _NAMES}
    latencies = [one.latency for one in found if one.latency is not None]
    return Figures(**sums, latency=max(latencies, default=None))


def numbers(stats: Mapping[str, str]) -> dict[str, float]:
    """Return the numeric statistics."""
    found = {}
    for name, text in stats.items():
        number = _number(text)
        if number is not None:
            found[name] = number
    return found


def _number(text: str) -> float | None:
    """Return a number that can be shown: not negative, infinite or NaN; else None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < _LARGEST else None


def hot_keys(stats: Mapping[str, str]) -> list[HotKey]:
    """Return the keys that ``stats hotkeys`` lists, the hottest first."""
    found: list[HotKey] = []
    while (key := stats.get(f"hotkeys:{len(found) + 1}:key")) is not None:
        head = f"hotkeys:{len(found) + 1}"
        rate = _number(stats.get(f"{head}:per_second", ""))
        share = _number(stats.get(f"{head}:share", ""))
        if rate is None or share is None:
            break
        found.append(HotKey(key, rate, share))
    return found


def _restarted(before: Reading, now: Reading) -> bool:
    was, now_is = numbers(before.stats), numbers(now.stats)
    return was.get("pid") != now_is.get("pid") or was.get("uptime", 0) > now_is.get("uptime", 0)


def _rates(before: Reading | None, now: Reading) -> dict[str, float]:
    if before is None or now.at <= before.at:
        return {}
    was, seconds = numbers(before.stats), now.at - before.at
    # Negative after "stats reset".
    return {
        name: max(0.0, value - was[name]) / seconds
        for name, value in numbers(now.stats).items()
        if name in was
    }


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _latency(stats: Mapping[str, str]) -> float | None:
    values = numbers(stats)
    return values.get("get:p99_us", 0.0) / 1e6 if values.get("get:samples") else None
