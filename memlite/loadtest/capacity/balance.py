"""How evenly a workload's requests are spread over servers."""

import functools
from typing import Final

import numpy as np
import numpy.typing as npt

from memlite.loadtest.keys import key_chooser
from memlite.loadtest.workload import Keys
from memlite.routing import Member, make_router

__all__ = ["Balance"]

_DRAWS: Final = 200_000
# So many of the most popular keys are placed each for itself; the others count as spread evenly.
_PLACED: Final = 20_000


class Balance:
    """The share of requests that the busiest server gets, placed by weighted ketama.

    The popularity of keys is drawn from the workload's distribution, always with the same seed.

    Args:
        keys: the keyspace.

    Attributes:
        hottest: the share of requests for the most popular key, of 1.
    """

    def __init__(self, keys: Keys) -> None:
        drawn = key_chooser(keys).choose(np.random.default_rng(1), _DRAWS)
        numbers, counts = np.unique(drawn, return_counts=True)
        order = np.argsort(-counts)[:_PLACED]
        self._keys = [f"{keys.prefix}{number}".encode() for number in numbers[order]]
        self._weights: npt.NDArray[np.float64] = counts[order] / _DRAWS
        self.hottest = float(self._weights[0])

    @functools.cache  # noqa: B019 - a plan has few of them, which live as long as it
    def busiest(self, servers: int) -> float:
        """Return the share of requests that the busiest of so many servers gets, of 1."""
        router = make_router("ketama", [Member(f"server-{one}") for one in range(servers)])
        placed = np.array([router.index(key) for key in self._keys])
        shares = np.bincount(placed, self._weights, servers)
        others = 1 - float(self._weights.sum())
        return float(shares.max()) + others / servers
