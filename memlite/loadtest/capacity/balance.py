"""How evenly a workload's requests are spread over servers."""

import functools
from typing import Final

import numpy as np
import numpy.typing as npt

from memlite.loadtest.keys import key_chooser
from memlite.loadtest.workload import Keys
from memlite.routing import Member, make_router

__all__ = ["Balance"]

_Shares = npt.NDArray[np.float64]

_DRAWS: Final = 200_000
# The number of most popular keys that are placed individually; the rest follow the ring's shares.
_PLACED: Final = 10_000
_SPREAD_EVENLY: Final = ("uniform", "sequential")


class Balance:
    """The share of requests that the busiest server gets, placed by weighted ketama.

    The popularity of keys is drawn from the workload's distribution, always with the same seed.

    Args:
        keys: the keyspace.

    Attributes:
        hottest: the share of requests for the most popular key, of 1.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys: list[bytes] = []
        self._weights: _Shares = np.zeros(0)
        self.hottest = 1 / keys.count
        if keys.distribution not in _SPREAD_EVENLY or keys.count <= _PLACED:
            drawn = key_chooser(keys).choose(np.random.default_rng(1), _DRAWS)
            numbers, counts = np.unique(drawn, return_counts=True)
            if keys.distribution in _SPREAD_EVENLY:
                counts = np.full(len(numbers), _DRAWS / len(numbers))  # the rest is chance
            order = np.argsort(-counts)[:_PLACED]
            self._keys = [f"{keys.prefix}{number}".encode() for number in numbers[order]]
            self._weights = counts[order] / _DRAWS
            self.hottest = max(self.hottest, float(self._weights[0]))

    @functools.cache  # noqa: B019 - a plan has few of them, which live as long as it
    def busiest(self, servers: int) -> float:
        """Return the share of requests that the busiest of `servers` servers gets, of 1."""
        router = make_router("ketama", [Member(f"server-{one}") for one in range(servers)])

        def shares(keys: list[bytes], weights: _Shares | None) -> _Shares:
            placed = np.array([router.index(key) for key in keys], dtype=np.int64)
            return np.bincount(placed, weights, servers).astype(float)

        found = shares(self._keys, self._weights) if self._keys else np.zeros(servers)
        others = 1 - float(self._weights.sum())
        if others > 0:
            ring = shares([b"%d" % number for number in range(_PLACED)], None)
            found = found + others * ring / _PLACED
        return float(found.max())
