"""Key choosers: each draws key numbers from one of the distributions of `Keys`."""

import math
from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from memlite.loadtest.workload import Keys

__all__ = ["KeyChooser", "key_chooser"]

_Numbers = npt.NDArray[np.int64]

# A zipfian table for 10 million keys takes 80 MB; all connections of a process share it.
_CACHED_TABLES = 2
_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


class KeyChooser(ABC):
    """Draws key numbers in batches."""

    _inserted = 0

    @abstractmethod
    def choose(
        self, rng: np.random.Generator, count: int, inserted_before: _Numbers | None = None
    ) -> _Numbers:
        """Return `count` key numbers.

        Args:
            rng: the source of randomness.
            count: number of keys to draw.
            inserted_before: for each draw, the number of keys this client inserts before it, not
                counting keys already passed to `note_inserted`; None if it inserts none. Only the
                latest distribution uses this.
        """

    def note_inserted(self, count: int) -> None:
        """Record that this client inserted `count` keys; affects only the latest distribution."""
        self._inserted += count


def key_chooser(keys: Keys, *, client: int = 0, clients: int = 1) -> KeyChooser:
    """Return a client's chooser for `keys`.

    Args:
        keys: a validated keyspace.
        client: the client's number, from 0.
        clients: the number of clients.
    """
    if keys.distribution == "zipfian":
        return _Zipfian(keys.count, keys.theta)
    if keys.distribution == "latest":
        return _Latest(keys.count, keys.theta, client, clients)
    if keys.distribution == "hotspot":
        return _Hotspot(keys.count, keys.hot_fraction, keys.hot_share)
    if keys.distribution == "sequential":
        return _Sequential(keys.count, client * keys.count // clients)
    return _Uniform(keys.count)


class _Uniform(KeyChooser):
    """All keys are equally likely."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def choose(
        self, rng: np.random.Generator, count: int, inserted_before: _Numbers | None = None
    ) -> _Numbers:
        return rng.integers(0, self._keys, count)


class _Zipfian(KeyChooser):
    """The key of rank r is drawn in proportion to 1/r**theta; ranks are spread over the keyspace.

    As in YCSB's scrambled zipfian, hot keys are not adjacent. Unlike YCSB, ranks are scrambled by a
    fixed permutation rather than a hash, so no two ranks share a key.
    """

    def __init__(self, keys: int, theta: float) -> None:
        self._keys = keys
        self._cumulative_weights = _cumulative_weights(keys, theta)
        self._step = _coprime_step(keys)

    def choose(
        self, rng: np.random.Generator, count: int, inserted_before: _Numbers | None = None
    ) -> _Numbers:
        return _ranks(self._cumulative_weights, rng, count) * self._step % self._keys


class _Latest(KeyChooser):
    """Zipfian by the distance from the newest key.

    A client draws from the initial keys and from its own inserts, its last insert being the newest.
    It never draws keys inserted by other clients: it cannot know which of them exist yet, and would
    measure misses that no real application sees.
    """

    def __init__(self, keys: int, theta: float, client: int, clients: int) -> None:
        self._keys = keys
        self._cumulative_weights = _cumulative_weights(keys, theta)
        self._client = client
        self._clients = clients

    def choose(
        self, rng: np.random.Generator, count: int, inserted_before: _Numbers | None = None
    ) -> _Numbers:
        position = self._keys - 1 + self._inserted - _ranks(self._cumulative_weights, rng, count)
        if inserted_before is not None:
            position += inserted_before
        # The client's n-th insert (from 0) has the number keys + client + n * clients.
        own = self._keys + self._client + (position - self._keys) * self._clients
        return np.where(position < self._keys, position, own)


class _Hotspot(KeyChooser):
    """A share of the operations goes to the hot keys, the rest to the cold keys, both uniformly."""

    def __init__(self, keys: int, fraction: float, share: float) -> None:
        self._keys = keys
        self._hot = max(1, round(keys * fraction))
        self._share = share if self._hot < keys else 1.0

    def choose(
        self, rng: np.random.Generator, count: int, inserted_before: _Numbers | None = None
    ) -> _Numbers:
        hot = rng.random(count) < self._share
        first = np.where(hot, 0, self._hot)
        end = np.where(hot, self._hot, self._keys)
        # If all keys are hot, `first` is always 0, so no range is empty.
        return rng.integers(first, end)


class _Sequential(KeyChooser):
    """Keys in order from `start`, wrapping around after the last."""

    def __init__(self, keys: int, start: int) -> None:
        self._keys = keys
        self._next = start

    def choose(
        self, rng: np.random.Generator, count: int, inserted_before: _Numbers | None = None
    ) -> _Numbers:
        numbers = np.arange(self._next, self._next + count, dtype=np.int64) % self._keys
        self._next = (self._next + count) % self._keys
        return numbers


@lru_cache(maxsize=_CACHED_TABLES)
def _cumulative_weights(keys: int, theta: float) -> npt.NDArray[np.float64]:
    """Return the running sums of 1/r**theta over the ranks r = 1, 2, …."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -theta
    return np.cumsum(weights, out=weights)


def _ranks(weights: npt.NDArray[np.float64], rng: np.random.Generator, count: int) -> _Numbers:
    """Return `count` zipfian ranks, from 0, by inverse transform sampling."""
    drawn = rng.random(count) * weights[-1]
    # Rounding may make a draw equal to the last sum, which would give a rank past the end.
    ranks: _Numbers = np.minimum(weights.searchsorted(drawn, side="right"), len(weights) - 1)
    return ranks


def _coprime_step(keys: int) -> int:
    """Return a step that visits every one of `keys` numbers, keeping adjacent ranks far apart."""
    step = max(1, round(keys * _GOLDEN_RATIO))
    while math.gcd(step, keys) != 1:
        step += 1
    return step
