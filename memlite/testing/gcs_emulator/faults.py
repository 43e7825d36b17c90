"""Fault injection: which faults occur, how often and when; reproducible with a seed."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, get_args

from memlite.testing.gcs_emulator.latency import Fixed, Latency, parse_latency

__all__ = ["Action", "Decision", "FaultPlan", "Faults", "Outage"]

Action = Literal["serve", "error", "reset", "hang", "lose-503", "lose-reset", "late"]
"""The outcome of a request.

It is served; answered with an error, reset or left hanging without being executed; executed, but
its acknowledgement is lost; or reset and executed later, after the client has given up.
"""

Outage = Literal["503", "reset", "hang"]
"""The outcome of every request during an outage."""

_STATUSES = range(400, 600)
LATE_DELAY: Final = Fixed(4.0)


class Decision(NamedTuple):
    """The decision about one request.

    Attributes:
        action: what happens to it.
        delay: seconds to wait first.
        status: the HTTP status of an ``error``.
        late: seconds after which a ``late`` request is executed.
    """

    action: Action = "serve"
    delay: float = 0.0
    status: int = 503
    late: float = 0.0


_SERVE = Decision()


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Which faults occur, and how often.

    Attributes:
        read_latency: added latency of reads; None for none.
        write_latency: added latency of writes; None for none.
        error_rates: by status, the share of requests answered with it instead of being executed.
        reset_rate: the share of requests that are not executed, and whose connection is reset.
        lost_ack_rate: the share of writes that are executed but not acknowledged.
        lost_ack: what the client sees instead: ``reset``, ``503``, or ``mixed`` for either.
        late_rate: the share of writes whose connection is reset, and which are executed later, like
            a request that was delayed on the network.
        late_delay: the delay before executing them; None for no delay.

    Raises:
        ValueError: a value is invalid; the message is one line.
    """

    read_latency: Latency | None = None
    write_latency: Latency | None = None
    error_rates: Mapping[int, float] = field(default_factory=dict)
    reset_rate: float = 0.0
    lost_ack_rate: float = 0.0
    lost_ack: Literal["reset", "503", "mixed"] = "reset"
    late_rate: float = 0.0
    late_delay: Latency | None = LATE_DELAY

    def __post_init__(self) -> None:
        rates = {
            "reset_rate": self.reset_rate,
            "lost_ack_rate": self.lost_ack_rate,
            "late_rate": self.late_rate,
            **{f"error_rates: {status}": rate for status, rate in self.error_rates.items()},
        }
        for name, rate in rates.items():
            if not isinstance(rate, int | float) or not 0 <= rate <= 1:
                raise ValueError(f"{name}: must be from 0 to 1, not {rate!r}")
        for status in self.error_rates:
            if status not in _STATUSES:
                raise ValueError(f"error_rates: must be a status from 400 to 599, not {status!r}")
        if self.reset_rate + sum(self.error_rates.values()) > 1:
            raise ValueError("error_rates and reset_rate: the sum must not be more than 1")
        if self.lost_ack not in ("reset", "503", "mixed"):
            raise ValueError(f"lost_ack: must be reset, 503 or mixed, not {self.lost_ack!r}")


NO_FAULTS = FaultPlan()


class Faults:
    """Decides what happens to each request. May be changed at any time, from any thread.

    Args:
        seed: seed of the random decisions; None for a different sequence in every run.
        clock: a monotonic clock in seconds, for outages.
        plan: fields of `FaultPlan`; latencies may also be given as text, see `parse_latency`.

    Attributes:
        counts: number of requests by fault.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        **plan: Any,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)  # noqa: S311 - not used for cryptography
        self._clock = clock
        self._plan = NO_FAULTS
        self._inactive = True
        self._outage: tuple[Outage, float | None] | None = None
        self.set(**plan)

    @property
    def plan(self) -> FaultPlan:
        """The current plan."""
        return self._plan

    def set(self, **changes: Any) -> None:
        """Change some fields of the plan.

        Args:
            changes: fields of `FaultPlan`. Latencies may be given as text, see `parse_latency`;
                ``latency`` sets both the read and the write latency.

        Raises:
            ValueError: a value is invalid.
            TypeError: there is no such field.
        """
        if "latency" in changes:
            both = changes.pop("latency")
            changes = {"read_latency": both, "write_latency": both, **changes}
        for name in ("read_latency", "write_latency", "late_delay"):
            if isinstance(changes.get(name), str):
                changes[name] = parse_latency(changes[name])
        self._plan = replace(self._plan, **changes)
        self._inactive = self._plan == NO_FAULTS

    def clear(self) -> None:
        """Remove all faults, and end any outage."""
        self._plan = NO_FAULTS
        self._inactive = True
        self._outage = None

    def reseed(self, seed: int | None) -> None:
        """Restart the sequence of random decisions."""
        self._random.seed(seed)

    def begin_outage(self, kind: Outage, seconds: float | None = None) -> None:
        """Start an outage, during which every request fails.

        Args:
            kind: ``503``, ``reset`` or ``hang``. Hanging requests are reset when it ends.
            seconds: duration of the outage; None to last until `end_outage`.

        Raises:
            ValueError: there is no such kind.
        """
        if kind not in get_args(Outage):
            raise ValueError(f"outage: must be 503, reset or hang, not {kind!r}")
        self._outage = (kind, None if seconds is None else self._clock() + seconds)

    def end_outage(self) -> None:
        """End the outage."""
        self._outage = None

    @property
    def outage(self) -> Outage | None:
        """The current outage, or None."""
        outage = self._outage
        if outage is None:
            return None
        kind, end = outage
        if end is not None and self._clock() >= end:
            self._outage = None
            return None
        return kind

    def decide(self, *, on_objects: bool, reads: bool) -> Decision:
        """Decide what happens to a request.

        Args:
            on_objects: whether it concerns objects; other requests are affected only by outages.
            reads: whether it is a read.
        """
        if self._outage is None and self._inactive:
            return _SERVE
        decision = self._draw(on_objects=on_objects, reads=reads)
        if decision.action != "serve":
            kind = f"error-{decision.status}" if decision.action == "error" else decision.action
            self.counts[kind] += 1
        return decision

    def _draw(self, *, on_objects: bool, reads: bool) -> Decision:
        outage = self.outage
        if outage == "503":
            return Decision("error")
        if outage is not None:
            return Decision(outage)
        if not on_objects:
            return _SERVE
        plan = self._plan
        latency = plan.read_latency if reads else plan.write_latency
        delay = latency.sample(self._random) if latency else 0.0
        chance = self._random.random()
        if chance < plan.reset_rate:
            return Decision("reset", delay)
        chance -= plan.reset_rate
        for status, rate in plan.error_rates.items():
            if chance < rate:
                return Decision("error", delay, status)
            chance -= rate
        if not reads and self._random.random() < plan.lost_ack_rate:
            kind = plan.lost_ack
            if kind == "mixed":
                kind = self._random.choice(("reset", "503"))
            return Decision("lose-503" if kind == "503" else "lose-reset", delay)
        if not reads and plan.late_rate and self._random.random() < plan.late_rate:
            late = plan.late_delay.sample(self._random) if plan.late_delay else 0.0
            return Decision("late", delay, late=late)
        return Decision("serve", delay)
