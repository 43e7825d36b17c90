"""Which keys are asked for: choosers of key numbers."""

import math
from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from memlite.loadtest.workload import Keys

__all__ = ["KeyChooser", "key_chooser"]

_Numbers = npt.NDArray[np.int64]

# Two: a zipfian over 10 million keys takes 80 MB, which all connections of a process share.
_TABLES_KEPT = 2
_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


class KeyChooser(ABC):
    """Chooses key numbers, many at once."""

    _inserted = 0

    @abstractmethod
    def choose(
        self, rng: np.random.Generator, count: int, before: _Numbers | None = None
    ) -> _Numbers:
        """Return `count` key numbers.

        Args:
            rng: where chance comes from.
            count: how many.
            before: for each of them how many keys this client will have inserted before it, since
                the last call of `inserted`; None for none. Only latest looks at it.
        """

    def inserted(self, count: int) -> None:
        """Note that this client inserted `count` keys; all but latest choose as before."""
        self._inserted += count


def key_chooser(keys: Keys, *, client: int = 0, clients: int = 1) -> KeyChooser:
    """Return what chooses `keys` for a client.

    Args:
        keys: valid ones.
        client: its number, from 0.
        clients: how many there are.
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
    """Each key as often as any other."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def choose(
        self, rng: np.random.Generator, count: int, before: _Numbers | None = None
    ) -> _Numbers:
        return rng.integers(0, self._keys, count)


class _Zipfian(KeyChooser):
    """The key of rank r in proportion to 1/r**theta; ranks are spread over the key numbers.

    As in YCSB's scrambled zipfian hot keys are not neighbours. Unlike there no two ranks share a
    key: a fixed permutation scrambles them, not a hash.
    """

    def __init__(self, keys: int, theta: float) -> None:
        self._keys = keys
        self._cumulated = _cumulated(keys, theta)
        self._step = _coprime_step(keys)

    def choose(
        self, rng: np.random.Generator, count: int, before: _Numbers | None = None
    ) -> _Numbers:
        return _ranks(self._cumulated, rng, count) * self._step % self._keys


class _Latest(KeyChooser):
    """Zipfian, by the distance from the newest key.

    A client knows the keys there were at first and those that it inserted itself, of which the
    newest is its last. What others insert it does not ask for: it could not know what is there
    already, and misses would be measured that no application has.
    """

    def __init__(self, keys: int, theta: float, client: int, clients: int) -> None:
        self._keys = keys
        self._cumulated = _cumulated(keys, theta)
        self._client = client
        self._clients = clients

    def choose(
        self, rng: np.random.Generator, count: int, before: _Numbers | None = None
    ) -> _Numbers:
        place = self._keys - 1 + self._inserted - _ranks(self._cumulated, rng, count)
        if before is not None:
            place += before
        # The client's n-th insert (from 0) has the number keys + client + n * clients.
        own = self._keys + self._client + (place - self._keys) * self._clients
        return np.where(place < self._keys, place, own)


class _Hotspot(KeyChooser):
    """A share of the operations goes to the first keys, the rest to the others, both uniformly."""

    def __init__(self, keys: int, fraction: float, share: float) -> None:
        self._keys = keys
        self._hot = max(1, round(keys * fraction))
        self._share = share if self._hot < keys else 1.0

    def choose(
        self, rng: np.random.Generator, count: int, before: _Numbers | None = None
    ) -> _Numbers:
        hot = rng.random(count) < self._share
        first = np.where(hot, 0, self._hot)
        end = np.where(hot, self._hot, self._keys)
        # Where all are hot `first` is never that of the others, so no range is empty.
        return rng.integers(first, end)


class _Sequential(KeyChooser):
    """One key after the other, from `start`, and again from 0 after the last."""

    def __init__(self, keys: int, start: int) -> None:
        self._keys = keys
        self._next = start

    def choose(
        self, rng: np.random.Generator, count: int, before: _Numbers | None = None
    ) -> _Numbers:
        numbers = np.arange(self._next, self._next + count, dtype=np.int64) % self._keys
        self._next = (self._next + count) % self._keys
        return numbers


@lru_cache(maxsize=_TABLES_KEPT)
def _cumulated(keys: int, theta: float) -> npt.NDArray[np.float64]:
    """Return the sums of 1/r**theta for r from 1 to each of the ranks."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -theta
    return np.cumsum(weights, out=weights)


def _ranks(cumulated: npt.NDArray[np.float64], rng: np.random.Generator, count: int) -> _Numbers:
    """Return `count` zipfian ranks, from 0: the inverse of the distribution, looked up."""
    drawn = rng.random(count) * cumulated[-1]
    # Rounding might make a draw as large as the last sum, and its rank one too many.
    ranks: _Numbers = np.minimum(cumulated.searchsorted(drawn, side="right"), len(cumulated) - 1)
    return ranks


def _coprime_step(keys: int) -> int:
    """Return a step that visits all `keys` numbers, neighbours far from each other."""
    step = max(1, round(keys * _GOLDEN_RATIO))
    while math.gcd(step, keys) != 1:
        step += 1
    return step
