"""The values that are stored: how large they are, and the bytes in them."""

from functools import lru_cache
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

from memlite.errors import ConfigError
from memlite.loadtest.workload import LARGEST_VALUE, Values

__all__ = ["ValueSource", "mean_size", "read_sizes"]

_BLOCK_SIZE = 1 << 20
_BLOCK_SEED = 20_030_522  # any number; all processes need the same block
# Primes, so that neither keys nor writes that follow each other begin near each other.
_OFFSETS = 1_048_573
_KEY_STEP = 611_953
_SEQUENCE_STEP = 15_485_863
_SIZE_STEP = 104_729
# From this size on a value has a header: three numbers of 10, 19 and 9 digits and colons fit.
_HEADER_FROM = 48
_SAMPLE = 100_000


class ValueSource:
    """Draws sizes and makes values, which look random, so that nothing compresses them.

    A verifiable value of 48 bytes or more begins with ``key:sequence:size:``; the rest is cut from
    a block of random bytes, at an offset that depends on key and sequence. A shorter one is cut
    from there as a whole, at an offset that depends on key and size.

    Args:
        values: valid ones.

    Raises:
        ConfigError: the file of sizes cannot be read, or is wrong.
    """

    def __init__(self, values: Values) -> None:
        self._values = values
        self._block = _block()
        self._sizes: npt.NDArray[np.int64] | None = None
        self._least, self._most = values.least, values.most
        if values.distribution == "fixed":
            self._least = self._most = values.size
        elif values.distribution == "file":
            self._sizes = _sizes_in(values.file)
            self._least, self._most = int(self._sizes.min()), int(self._sizes.max())

    @property
    def fixed(self) -> int | None:
        """The size of all values in bytes; None where they differ."""
        return self._least if self._least == self._most else None

    def sizes(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        """Draw `count` sizes, in bytes."""
        values = self._values
        if self._sizes is not None:
            return rng.choice(self._sizes, count)
        if values.distribution == "lognormal":
            drawn = np.clip(rng.lognormal(np.log(values.size), values.sigma, count), 0, self._most)
            return np.maximum(np.rint(drawn).astype(np.int64), self._least)
        return rng.integers(self._least, self._most, count, endpoint=True)

    def plain(self, size: int) -> bytes:
        """Return a value of `size` bytes that need not be checked."""
        return self._cut(0, size)

    def make(self, number: int, sequence: int, size: int) -> bytes:
        """Return a value that `check` recognizes.

        Args:
            number: the key's.
            sequence: the write's, so that each writes something else.
            size: in bytes.
        """
        if size < _HEADER_FROM:
            # With the size in it, or one cut off would be as good as a smaller one.
            return self._cut((number * _KEY_STEP + size * _SIZE_STEP) % _OFFSETS, size)
        header = b"%d:%d:%d:" % (number, sequence, size)
        offset = (number * _KEY_STEP + sequence * _SEQUENCE_STEP) % _OFFSETS
        end = offset + size - len(header)
        # Written out, as a call is a third of what a small value costs.
        if size <= _BLOCK_SIZE:
            return header + self._block[offset:end]
        return header + self._cut(offset, end - offset)

    def check(self, number: int, value: bytes) -> bool:
        """Return whether `value` is as it was made for the key with that number, whenever.

        Everything corrupted, cut off or swapped is found in values of 48 bytes or more. In shorter
        ones it is found but for chance: one in 256 for a byte, one in 65,536 for two, one in a
        million for more. That an older value of the same key was brought is not found.
        """
        size = len(value)
        if not self._possible(size):
            return False
        sequence = b"0"
        if size >= _HEADER_FROM:
            parts = value[:_HEADER_FROM].split(b":", 2)
            sequence = parts[1] if len(parts) == 3 else b""
            if not sequence.isdigit():
                return False
        # The comparison finds a wrong key, a wrong size and all else that is odd in the header.
        return value == self.make(number, int(sequence), size)

    def _possible(self, size: int) -> bool:
        if not self._least <= size <= self._most:
            return False
        return self._sizes is None or bool(np.any(self._sizes == size))

    def _cut(self, offset: int, size: int) -> bytes:
        if size > _BLOCK_SIZE:
            return (self._block * (size // len(self._block) + 2))[offset : offset + size]
        return self._block[offset : offset + size]


def mean_size(values: Values) -> float:
    """Return the mean size of `values` in bytes; of lognormal, which is cut, that of a sample.

    Raises:
        ConfigError: the file of sizes cannot be read, or is wrong.
    """
    if values.distribution == "fixed":
        return float(values.size)
    if values.distribution == "uniform":
        return (values.least + values.most) / 2
    if values.distribution == "file":
        return fmean(read_sizes(values.file))
    return float(ValueSource(values).sizes(np.random.default_rng(_BLOCK_SEED), _SAMPLE).mean())


def read_sizes(path: str) -> list[int]:
    """Return the sizes, in bytes, that stand in a file, one in each line; empty lines are skipped.

    Raises:
        ConfigError: it cannot be read, holds no size or something that is none.
    """
    sizes = []
    try:
        with Path(path).open(encoding="ascii") as lines:
            for number, line in enumerate(lines, 1):
                text = line.strip()
                if not text:
                    continue
                # The length first: int() refuses endless digits with an error of its own.
                if not text.isdigit() or len(text) > 12 or int(text) > LARGEST_VALUE:
                    raise ConfigError(
                        f"{path}: line {number} must be a size from 0 to {LARGEST_VALUE}, "
                        f"not {text[:40]!r}"
                    )
                sizes.append(int(text))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: must be a text file with a size in each line") from None
    if not sizes:
        raise ConfigError(f"{path}: there is no size in it")
    return sizes


@lru_cache(maxsize=4)
def _sizes_in(path: str) -> npt.NDArray[np.int64]:
    """Return a file's sizes; all connections of a process share them."""
    return np.array(read_sizes(path), dtype=np.int64)


@lru_cache(maxsize=1)
def _block() -> bytes:
    """Return the block that values are cut from: twice the same, so that any offset will do."""
    return np.random.default_rng(_BLOCK_SEED).bytes(_BLOCK_SIZE) * 2
