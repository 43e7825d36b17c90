"""How often one address may try to authenticate."""

from ipaddress import IPv6Address, ip_address
from typing import Final

__all__ = ["ADDRESSES", "Throttle", "network"]

ADDRESSES: Final = 10_000
"""Addresses that are remembered, at a few hundred bytes each."""

FAILURES: Final = 20
"""Failures in a row that cost nothing."""

SECONDS_EACH: Final = 0.5
"""What each further one costs."""

PATIENCE: Final = 5.0
"""Seconds an attempt may be made to wait; beyond, it is refused without a look at it."""

_NETWORK_DIGITS: Final = len("2001:0db8:0000:0000")


def network(host: str) -> str:
    """Return whose a host is: IPv6 hands out /64 networks, of which each has any number of hosts.

    Args:
        host: an address, or anything for who has none (UNIX sockets).
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


class Throttle:
    """A token bucket for each address (as a generic cell rate algorithm: one number is its state).

    An attempt takes a token, and one that succeeds puts it back. Where the bucket is empty an
    attempt has to wait for the next token, behind those that wait already: so many addresses may
    be behind one (NAT) that it is never locked out for longer than `PATIENCE` after the last
    failure.

    Args:
        addresses: how many are remembered; of more, those that failed longest ago are forgotten.
    """

    def __init__(self, addresses: int = ADDRESSES) -> None:
        self._most = addresses
        # When the bucket will be full again; by last attempt, the oldest first.
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, address: str, now: float) -> float | None:
        """Take a token for an attempt.

        Args:
            address: whose it is.
            now: seconds.

        Returns:
            The seconds it has to wait before it may be looked at; None if they are too many, and
            it is to be refused.
        """
        full_at = max(self._full_at.get(address, now), now)
        wait = full_at + SECONDS_EACH - now - FAILURES * SECONDS_EACH
        if wait > PATIENCE:
            return None
        self._full_at.pop(address, None)
        self._full_at[address] = full_at + SECONDS_EACH
        self._forget(now)
        return max(wait, 0.0)

    def put_back(self, address: str, now: float) -> None:
        """Put the token of an attempt back, as it succeeded."""
        full_at = self._full_at.get(address)
        if full_at is None:
            return
        if full_at - SECONDS_EACH > now:
            self._full_at[address] = full_at - SECONDS_EACH
        else:
            del self._full_at[address]

    def _forget(self, now: float) -> None:
        """Forget addresses over the limit, and two at most that have nothing left to pay."""
        table = self._full_at
        for _ in range(2):
            oldest = next(iter(table))
            if len(table) <= self._most and table[oldest] > now:
                return
            del table[oldest]
