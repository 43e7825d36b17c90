"""Faults: what goes wrong, how often and when; seeded, so that it does so again the same way."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from memlite.testing.gcs_emulator.latency import Latency, parse_latency

__all__ = ["Deed", "FaultPlan", "Faults", "Outage", "Verdict"]

Deed = Literal["serve", "error", "reset", "hang", "lose-503", "lose-reset"]
"""What happens to a request: it is served, answered with an error or cut off without having been
carried out, left hanging, or carried out and its acknowledgement lost."""

Outage = Literal["503", "reset", "hang"]
"""What every request meets while all is down."""

_STATUSES = range(400, 600)


class Verdict(NamedTuple):
    """What happens to one request.

    Attributes:
        deed: what.
        delay: seconds to wait before anything else.
        status: that of an ``error``.
    """

    deed: Deed = "serve"
    delay: float = 0.0
    status: int = 503


_SERVE = Verdict()


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """What goes wrong, and how often.

    Attributes:
        read_latency: how long requests that read wait; None for not at all.
        write_latency: how long all others wait.
        error_rates: for each status the share of requests answered with it, not carried out.
        reset_rate: the share of requests whose connection is reset, not carried out.
        lost_ack_rate: the share of writes that are carried out and not acknowledged.
        lost_ack: what their client sees instead: ``reset``, ``503``, or ``mixed`` for either.

    Raises:
        ValueError: a value is impossible; says so in one line.
    """

    read_latency: Latency | None = None
    write_latency: Latency | None = None
    error_rates: Mapping[int, float] = field(default_factory=dict)
    reset_rate: float = 0.0
    lost_ack_rate: float = 0.0
    lost_ack: Literal["reset", "503", "mixed"] = "reset"

    def __post_init__(self) -> None:
        rates = {
            "reset_rate": self.reset_rate,
            "lost_ack_rate": self.lost_ack_rate,
            **{f"error_rates: {status}": rate for status, rate in self.error_rates.items()},
        }
        for name, rate in rates.items():
            if not isinstance(rate, int | float) or not 0 <= rate <= 1:
                raise ValueError(f"{name}: must be from 0 to 1, not {rate!r}")
        for status in self.error_rates:
            if status not in _STATUSES:
                raise ValueError(f"error_rates: must be a status from 400 to 599, not {status!r}")
        if self.reset_rate + sum(self.error_rates.values()) > 1:
            raise ValueError("error_rates and reset_rate: together more than 1")
        if self.lost_ack not in ("reset", "503", "mixed"):
            raise ValueError(f"lost_ack: must be reset, 503 or mixed, not {self.lost_ack!r}")


NO_FAULTS = FaultPlan()


class Faults:
    """Decides over each request. May be changed at any time, from any thread.

    Args:
        seed: for the random decisions; None for others in each run.
        clock: seconds that never decrease, for outages.
        plan: `FaultPlan`'s fields, latencies also as they are spelled on the command line.

    Attributes:
        counts: how many requests met what.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        **plan: Any,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)  # noqa: S311 - dice, not keys
        self._clock = clock
        self._plan = NO_FAULTS
        self._quiet = True
        self._outage: tuple[Outage, float | None] | None = None
        self.set(**plan)

    @property
    def plan(self) -> FaultPlan:
        """What goes wrong now."""
        return self._plan

    def set(self, **changes: Any) -> None:
        """Change the plan; what is not named stays.

        Args:
            changes: `FaultPlan`'s fields. Latencies may be given as text (`parse_latency`), and
                ``latency`` stands for reads and writes.

        Raises:
            ValueError: a value is impossible.
            TypeError: there is no such field.
        """
        if "latency" in changes:
            both = changes.pop("latency")
            changes = {"read_latency": both, "write_latency": both, **changes}
        for name in ("read_latency", "write_latency"):
            if isinstance(changes.get(name), str):
                changes[name] = parse_latency(changes[name])
        self._plan = replace(self._plan, **changes)
        self._quiet = self._plan == NO_FAULTS

    def clear(self) -> None:
        """Let nothing go wrong any more, and end an outage."""
        self._plan = NO_FAULTS
        self._quiet = True
        self._outage = None

    def reseed(self, seed: int | None) -> None:
        """Begin the random decisions anew."""
        self._random.seed(seed)

    def begin_outage(self, kind: Outage, seconds: float | None = None) -> None:
        """Let every request fail from now on.

        Args:
            kind: ``503``, ``reset`` or ``hang``. Hanging requests are cut off when it ends.
            seconds: how long; None until `end_outage`.

        Raises:
            ValueError: there is no such kind.
        """
        if kind not in get_args(Outage):
            raise ValueError(f"outage: must be 503, reset or hang, not {kind!r}")
        self._outage = (kind, None if seconds is None else self._clock() + seconds)

    def end_outage(self) -> None:
        """Serve again."""
        self._outage = None

    @property
    def outage(self) -> Outage | None:
        """The outage there is, or None."""
        outage = self._outage
        if outage is None:
            return None
        kind, end = outage
        if end is not None and self._clock() >= end:
            self._outage = None
            return None
        return kind

    def judge(self, *, on_objects: bool, reads: bool) -> Verdict:
        """Decide over a request.

        Args:
            on_objects: whether it concerns objects; others meet outages only.
            reads: whether it changes nothing.
        """
        if self._outage is None and self._quiet:
            return _SERVE
        verdict = self._decide(on_objects=on_objects, reads=reads)
        if verdict.deed != "serve":
            kind = f"error-{verdict.status}" if verdict.deed == "error" else verdict.deed
            self.counts[kind] += 1
        return verdict

    def _decide(self, *, on_objects: bool, reads: bool) -> Verdict:
        outage = self.outage
        if outage == "503":
            return Verdict("error")
        if outage is not None:
            return Verdict(outage)
        if not on_objects:
            return _SERVE
        plan = self._plan
        latency = plan.read_latency if reads else plan.write_latency
        delay = latency.sample(self._random) if latency else 0.0
        chance = self._random.random()
        if chance < plan.reset_rate:
            return Verdict("reset", delay)
        chance -= plan.reset_rate
        for status, rate in plan.error_rates.items():
            if chance < rate:
                return Verdict("error", delay, status)
            chance -= rate
        if not reads and self._random.random() < plan.lost_ack_rate:
            kind = plan.lost_ack
            if kind == "mixed":
                kind = self._random.choice(("reset", "503"))
            return Verdict("lose-503" if kind == "503" else "lose-reset", delay)
        return Verdict("serve", delay)
