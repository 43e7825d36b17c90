"""The values clients store: their sizes and their content."""

from functools import lru_cache
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

from memlite.core.errors import ConfigError
from memlite.loadtest.workload import MAX_VALUE_SIZE, Values

__all__ = ["ValueSource", "mean_size", "read_sizes"]

_BLOCK_SIZE = 1 << 20
_BLOCK_SEED = 20_030_522  # arbitrary, but all processes need the same block
# Primes, so that consecutive keys and consecutive writes start at distant offsets.
_OFFSET_RANGE = 1_048_573
_KEY_STEP = 611_953
_SEQUENCE_STEP = 15_485_863
_SIZE_STEP = 104_729
# Values of at least this size have a header: room for numbers of 10, 19 and 9 digits and colons.
_MIN_HEADER_SIZE = 48
_MEAN_SAMPLE_SIZE = 100_000


class ValueSource:
    """Draws value sizes and generates incompressible values.

    A verifiable value of 48 bytes or more begins with ``key:sequence:size:``. The rest is a slice
    of a block of random bytes, at an offset that depends on key and sequence. A shorter value is
    just a slice of that block, at an offset that depends on key and size.

    Args:
        values: a validated distribution.

    Raises:
        ConfigError: the file of sizes cannot be read or is malformed.
    """

    def __init__(self, values: Values) -> None:
        self._values = values
        self._block = _block()
        self._sizes: npt.NDArray[np.int64] | None = None
        self._least, self._most = values.least, values.most
        if values.distribution == "fixed":
            self._least = self._most = values.size
        elif values.distribution == "file":
            self._sizes = _cached_sizes(values.file)
            self._least, self._most = int(self._sizes.min()), int(self._sizes.max())

    @property
    def fixed(self) -> int | None:
        """The common size of all values in bytes; None if sizes vary."""
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

    def filler(self, size: int) -> bytes:
        """Return a value of `size` bytes that `check` does not recognise."""
        return self._slice(0, size)

    def make(self, number: int, sequence: int, size: int) -> bytes:
        """Return a value that `check` recognises.

        Args:
            number: the key's number.
            sequence: the write's number, which makes every write different.
            size: the value's size in bytes.
        """
        if size < _MIN_HEADER_SIZE:
            # The offset depends on the size; otherwise a truncated value would look valid.
            return self._slice((number * _KEY_STEP + size * _SIZE_STEP) % _OFFSET_RANGE, size)
        header = b"%d:%d:%d:" % (number, sequence, size)
        offset = (number * _KEY_STEP + sequence * _SEQUENCE_STEP) % _OFFSET_RANGE
        end = offset + size - len(header)
        # Inlined: a call would add a third to the cost of a small value.
        if size <= _BLOCK_SIZE:
            return header + self._block[offset:end]
        return header + self._slice(offset, end - offset)

    def check(self, number: int, value: bytes) -> bool:
        """Return whether `value` was generated for the key with that number, by any write.

        In values of 48 bytes or more every corruption, truncation or mix-up is detected. In shorter
        values some escape by chance: one in 256 for one byte, one in 65,536 for two bytes, one in a
        million for more. A stale value of the same key is not detected.
        """
        size = len(value)
        if not self._is_possible_size(size):
            return False
        sequence = b"0"
        if size >= _MIN_HEADER_SIZE:
            parts = value[:_MIN_HEADER_SIZE].split(b":", 2)
            sequence = parts[1] if len(parts) == 3 else b""
            if not sequence.isdigit():
                return False
        # The comparison also detects a wrong key, a wrong size or any other fault in the header.
        return value == self.make(number, int(sequence), size)

    def _is_possible_size(self, size: int) -> bool:
        if not self._least <= size <= self._most:
            return False
        return self._sizes is None or bool(np.any(self._sizes == size))

    def _slice(self, offset: int, size: int) -> bytes:
        if size > _BLOCK_SIZE:
            return (self._block * (size // len(self._block) + 2))[offset : offset + size]
        return self._block[offset : offset + size]


def mean_size(values: Values) -> float:
    """Return the mean size of `values` in bytes; estimated from a sample for clamped lognormal.

    Raises:
        ConfigError: the file of sizes cannot be read or is malformed.
    """
    if values.distribution == "fixed":
        return float(values.size)
    if values.distribution == "uniform":
        return (values.least + values.most) / 2
    if values.distribution == "file":
        return fmean(read_sizes(values.file))
    return float(
        ValueSource(values).sizes(np.random.default_rng(_BLOCK_SEED), _MEAN_SAMPLE_SIZE).mean()
    )


def read_sizes(path: str) -> list[int]:
    """Read a file of sizes in bytes, one on each line; blank lines are skipped.

    Raises:
        ConfigError: the file cannot be read, contains no sizes, or is malformed.
    """
    sizes = []
    try:
        with Path(path).open(encoding="ascii") as lines:
            for number, line in enumerate(lines, 1):
                text = line.strip()
                if not text:
                    continue
                # Check the length first: int() rejects very long digit strings with its own error.
                if not text.isdigit() or len(text) > 12 or int(text) > MAX_VALUE_SIZE:
                    raise ConfigError(
                        f"{path}: line {number} must be a size from 0 to {MAX_VALUE_SIZE}, "
                        f"not {text[:40]!r}"
                    )
                sizes.append(int(text))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: must be a text file with one size on each line") from None
    if not sizes:
        raise ConfigError(f"{path}: contains no sizes")
    return sizes


@lru_cache(maxsize=4)
def _cached_sizes(path: str) -> npt.NDArray[np.int64]:
    """Return a file's sizes, shared by all connections of a process."""
    return np.array(read_sizes(path), dtype=np.int64)


@lru_cache(maxsize=1)
def _block() -> bytes:
    """Return the block that values are sliced from, doubled so that any offset works."""
    return np.random.default_rng(_BLOCK_SEED).bytes(_BLOCK_SIZE) * 2
