"""How long the emulator lets a request wait: distributions, and their spelling on command lines."""

import math
import random
import re
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Fixed", "Latency", "Lognormal", "Uniform", "parse_duration", "parse_latency"]

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)", re.ASCII)
# How many standard deviations above the mean the 99th percentile of a normal distribution lies.
_Z99 = 2.3263478740408408


class Latency(Protocol):
    """A distribution of waiting times."""

    def sample(self, source: random.Random) -> float:
        """Return a time in seconds."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same (``fixed:20ms``).

    Attributes:
        seconds: how long.
    """

    seconds: float

    def sample(self, source: random.Random) -> float:
        """Return a time in seconds."""
        return self.seconds

    def __str__(self) -> str:
        return f"fixed:{_spell(self.seconds)}"


@dataclass(frozen=True, slots=True)
class Uniform:
    """Anything between two bounds (``uniform:10ms-30ms``).

    Attributes:
        low: the least, in seconds.
        high: the most, in seconds.
    """

    low: float
    high: float

    def sample(self, source: random.Random) -> float:
        """Return a time in seconds."""
        return source.uniform(self.low, self.high)

    def __str__(self) -> str:
        return f"uniform:{_spell(self.low)}-{_spell(self.high)}"


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Mostly short with a long tail, as of storage services (``lognormal:median=20ms,p99=80ms``).

    Attributes:
        median: in seconds; more than 0.
        p99: the 99th percentile, in seconds.
    """

    median: float
    p99: float

    def sample(self, source: random.Random) -> float:
        """Return a time in seconds."""
        sigma = math.log(self.p99 / self.median) / _Z99
        return self.median * math.exp(sigma * source.gauss())

    def __str__(self) -> str:
        return f"lognormal:median={_spell(self.median)},p99={_spell(self.p99)}"


def parse_duration(text: str) -> float:
    """Return the seconds that ``20ms``, ``150us`` or ``1.5s`` stand for.

    Raises:
        ValueError: it is no such text; says so in one line.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"not a time such as 20ms, 150us or 1.5s: {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def parse_latency(text: str) -> Latency | None:
    """Return the distribution that `text` spells; None for ``none``.

    Raises:
        ValueError: it spells none; says so in one line.
    """
    kind, _, rest = text.strip().partition(":")
    if kind == "none" and not rest:
        return None
    if kind == "fixed":
        return Fixed(parse_duration(rest))
    if kind == "uniform":
        low, high = map(parse_duration, rest.split("-") if rest.count("-") == 1 else ["", ""])
        if low > high:
            raise ValueError(f"the bounds are the wrong way round: {text!r}")
        return Uniform(low, high)
    if kind == "lognormal":
        values = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        if values.keys() == {"median", "p99"}:
            median, p99 = parse_duration(values["median"]), parse_duration(values["p99"])
            if not 0 < median <= p99:
                raise ValueError(f"the median must be above 0 and not above p99: {text!r}")
            return Lognormal(median, p99)
    raise ValueError(
        "must be fixed:20ms, uniform:10ms-30ms, lognormal:median=20ms,p99=80ms or none, "
        f"not {text!r}"
    )


def _spell(seconds: float) -> str:
    """Return the shortest spelling that `parse_duration` reads back."""
    unit = "s" if seconds >= 1 else "ms" if seconds >= 1e-3 else "us"
    return f"{round(seconds / _UNITS[unit], 6):g}{unit}"
