"""Distributions of the emulator's added latency, and their command-line syntax."""

import math
import random
import re
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Fixed", "Latency", "Lognormal", "Uniform", "parse_duration", "parse_latency"]

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)", re.ASCII)
# The 99th percentile of the standard normal distribution.
_Z99 = 2.3263478740408408


class Latency(Protocol):
    """A latency distribution."""

    def sample(self, source: random.Random) -> float:
        """Draw a latency in seconds."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A constant latency (``fixed:20ms``).

    Attributes:
        seconds: the latency in seconds.
    """

    seconds: float

    def sample(self, source: random.Random) -> float:
        """Draw a latency in seconds."""
        return self.seconds

    def __str__(self) -> str:
        return f"fixed:{_format_duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class Uniform:
    """A uniform distribution (``uniform:10ms-30ms``).

    Attributes:
        low: the lower bound, in seconds.
        high: the upper bound, in seconds.
    """

    low: float
    high: float

    def sample(self, source: random.Random) -> float:
        """Draw a latency in seconds."""
        return source.uniform(self.low, self.high)

    def __str__(self) -> str:
        return f"uniform:{_format_duration(self.low)}-{_format_duration(self.high)}"


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A long-tailed distribution typical of storage (``lognormal:median=20ms,p99=80ms``).

    Attributes:
        median: the median, in seconds; more than 0.
        p99: the 99th percentile, in seconds.
    """

    median: float
    p99: float

    def sample(self, source: random.Random) -> float:
        """Draw a latency in seconds."""
        sigma = math.log(self.p99 / self.median) / _Z99
        return self.median * math.exp(sigma * source.gauss())

    def __str__(self) -> str:
        return f"lognormal:median={_format_duration(self.median)},p99={_format_duration(self.p99)}"


def parse_duration(text: str) -> float:
    """Parse a duration such as ``20ms``, ``150us`` or ``1.5s``; returns seconds.

    Raises:
        ValueError: the text is malformed; the message is one line.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"not a duration such as 20ms, 150us or 1.5s: {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def parse_latency(text: str) -> Latency | None:
    """Parse a latency distribution; returns None for ``none``.

    Raises:
        ValueError: the text is malformed; the message is one line.
    """
    kind, _, rest = text.strip().partition(":")
    if kind == "none" and not rest:
        return None
    if kind == "fixed":
        return Fixed(parse_duration(rest))
    if kind == "uniform":
        low, high = map(parse_duration, rest.split("-") if rest.count("-") == 1 else ["", ""])
        if low > high:
            raise ValueError(f"the lower bound exceeds the upper bound: {text!r}")
        return Uniform(low, high)
    if kind == "lognormal":
        values = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        if values.keys() == {"median", "p99"}:
            median, p99 = parse_duration(values["median"]), parse_duration(values["p99"])
            if not 0 < median <= p99:
                raise ValueError(f"the median must be above 0 and must not exceed p99: {text!r}")
            return Lognormal(median, p99)
    raise ValueError(
        "must be fixed:20ms, uniform:10ms-30ms, lognormal:median=20ms,p99=80ms or none, "
        f"not {text!r}"
    )


def _format_duration(seconds: float) -> str:
    """Return the shortest text that `parse_duration` parses to this duration."""
    unit = "s" if seconds >= 1 else "ms" if seconds >= 1e-3 else "us"
    return f"{round(seconds / _UNITS[unit], 6):g}{unit}"
