"""Where requests spend their time, according to ``stats proxy`` of a cluster's proxies."""

from collections.abc import Iterable, Mapping
from typing import Final

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError

from memlite.client.address import Address
from memlite.core.errors import StartError
from memlite.loadtest.results import ProxyTimes

__all__ = ["read", "times_between"]

_TIMEOUT: Final = 5.0  # seconds

Sums = Mapping[str, tuple[float, float]]
"""By name: the number of samples since the start, and their sum."""


def read(proxies: Iterable[tuple[str, int] | str]) -> Sums:
    """Return the sums over all proxies.

    Args:
        proxies: addresses of the proxies.

    Raises:
        StartError: a proxy does not answer.
    """
    total: dict[str, tuple[float, float]] = {}
    for address in proxies:
        for name, (count, amount) in _read_one(address).items():
            before = total.get(name, (0.0, 0.0))
            total[name] = (before[0] + count, before[1] + amount)
    return total


def _read_one(address: tuple[str, int] | str) -> Sums:
    client = Client(address, connect_timeout=_TIMEOUT, timeout=_TIMEOUT)
    try:
        rows = {_text(name): _text(value) for name, value in client.stats("proxy").items()}
    except (OSError, MemcacheError) as error:
        raise StartError(f"bench: the proxy at {Address.of(address)}: {error}") from None
    finally:
        client.close()
    # Without a limit, requests do not queue, and the queue statistics are samples of writes.
    limited = rows.get("in_flight_limit", "none") != "none"
    found = {}
    for row in rows:
        name = row.removesuffix("_count")
        if name != row and (limited or name.startswith("node:")):
            count = float(rows[row])
            found[name] = (count, count * float(rows[f"{name}_us_mean"]))
    if limited:
        arrivals = float(rows["arrivals"])
        found["queue_length"] = (arrivals, arrivals * float(rows["queue_length_mean"]))
    return found


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def times_between(before: Sums, after: Sums) -> ProxyTimes | None:
    """Return the means between two readings; None if nothing was measured in between."""

    def mean(name: str) -> float | None:
        count, amount = after.get(name, (0.0, 0.0))
        earlier = before.get(name, (0.0, 0.0))
        if count <= earlier[0]:
            return None
        # Means are rounded, so a sum can appear to decrease.
        return round(max(0.0, amount - earlier[1]) / (count - earlier[0]), 3)

    nodes = {
        name.split(":")[1]: found
        for name in after
        if name.startswith("node:") and (found := mean(name)) is not None
    }
    if not nodes:
        return None
    return ProxyTimes(mean("queue_length"), mean("queue"), mean("service"), mean("think"), nodes)
