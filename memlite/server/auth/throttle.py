"""Throttling of authentication attempts, by address."""

from ipaddress import IPv6Address, ip_address
from typing import Final

__all__ = ["ADDRESSES", "Throttle", "after_attempt", "after_success", "network"]

ADDRESSES: Final = 10_000
"""The most addresses to track, at a few hundred bytes each."""

FAILURES: Final = 20
"""Consecutive failures without a delay."""

SECONDS_EACH: Final = 0.5
"""The delay that each further failure adds, in seconds."""

PATIENCE: Final = 5.0
"""The longest delay in seconds; an attempt that would have to wait longer is refused unchecked."""

_NETWORK_DIGITS: Final = len("2001:0db8:0000:0000")


def network(host: str) -> str:
    """Return the network to throttle for a host.

    For IPv6 this is the /64 network, since one customer usually controls all of its addresses.

    Args:
        host: an IP address, or any other text for clients without one (UNIX sockets).
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return f"{address.exploded[:_NETWORK_DIGITS]}::/64"
    return str(address)


def after_attempt(full_at: float, now: float) -> tuple[float, float] | None:
    """Return how long an attempt has to wait, and when the bucket will be full after it.

    Args:
        full_at: when the bucket would be full without the attempt.
        now: the time in seconds.

    Returns:
        None if the wait would be too long: the attempt must be refused.
    """
    full_at = max(full_at, now) + SECONDS_EACH
    wait = full_at - now - FAILURES * SECONDS_EACH
    return None if wait > PATIENCE else (max(wait, 0.0), full_at)


def after_success(full_at: float, now: float) -> float:
    """Return when a bucket will be full after a successful attempt; `now` if it is full already."""
    return max(full_at - SECONDS_EACH, now)


class Throttle:
    """A token bucket for each address.

    Implemented as a generic cell rate algorithm, so the state of a bucket is a single number. Each
    attempt takes a token, and a successful one returns it. If the bucket is empty, the attempt
    queues for the next token. Since many clients may share an address (NAT), an address is never
    locked out for longer than `PATIENCE` after its last failure.

    Args:
        addresses: the most addresses to track; those with the oldest attempts are dropped first.
    """

    def __init__(self, addresses: int = ADDRESSES) -> None:
        self._most = addresses
        # The time at which each bucket will be full again, in order of the last attempt.
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, address: str, now: float) -> float | None:
        """Take a token for an attempt.

        Args:
            address: the client's address.
            now: the time in seconds.

        Returns:
            The seconds to wait before the attempt may be checked; None if it must be refused
            because that would take too long.
        """
        result = after_attempt(self._full_at.get(address, now), now)
        if result is None:
            return None
        wait, full_at = result
        self._full_at.pop(address, None)
        self._full_at[address] = full_at
        self._forget(now)
        return wait

    def put_back(self, address: str, now: float) -> None:
        """Return the token of an attempt that succeeded."""
        full_at = self._full_at.get(address)
        if full_at is None:
            return
        full_at = after_success(full_at, now)
        if full_at > now:
            self._full_at[address] = full_at
        else:
            del self._full_at[address]

    def _forget(self, now: float) -> None:
        """Drop addresses over the limit or with a full bucket, at most two per call."""
        table = self._full_at
        for _ in range(2):
            oldest = next(iter(table))
            if len(table) <= self._most and table[oldest] > now:
                return
            del table[oldest]
