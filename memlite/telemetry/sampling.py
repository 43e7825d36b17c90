"""Sampling of command latencies and keys."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from memlite.telemetry.counters import COMMAND_CLASSES, LatencyHistogram

if TYPE_CHECKING:
    from memlite.telemetry.snapshot import Exemplar

__all__ = ["Sampler"]


class Sampler:
    """Selects the reads to sample, and records the samples.

    Args:
        record_keys: called with the keys of each sampled command.
        record_changes: called with the same keys, before `record_keys`, unless the command only
            reads.
        interval: one read in this many is sampled, on average.

    Attributes:
        interval: as above.
        histograms: latencies by command class, in nanoseconds from the end of parsing until the
            reply is ready.
        exemplars: of the samples that were traced, the last of each class of durations, by command
            class; see `memlite.telemetry.snapshot.Durations`.
    """

    def __init__(
        self,
        record_keys: Callable[[Sequence[bytes]], None] = lambda keys: None,
        interval: int = 64,
        *,
        record_changes: Callable[[Sequence[bytes]], None] = lambda keys: None,
    ) -> None:
        self.reset()
        self.interval = interval
        self._record_keys = record_keys
        self._record_changes = record_changes
        self._random = Random().random  # noqa: S311 - no secret

    def reset(self) -> None:
        """Discard all samples (``stats reset``)."""
        self.histograms = {name: LatencyHistogram() for name in COMMAND_CLASSES}
        self.exemplars: dict[str, dict[int, Exemplar]] = {}

    def next_read(self) -> int:
        """Return the random number of reads until the next sample, `interval` on average.

        With a fixed interval, a client that repeats a sequence of commands could have the same
        command sampled every time.
        """
        # randrange() would take ten times as long.
        return 1 + int(self._random() * (2 * self.interval - 1))

    def record(self, command_class: str, nanoseconds: int, keys: Sequence[bytes]) -> None:
        """Record a sampled command.

        Args:
            command_class: one of `memlite.telemetry.counters.COMMAND_CLASSES`.
            nanoseconds: its latency.
            keys: its keys, empty for commands without any.
        """
        self.histograms[command_class].record(nanoseconds)
        if keys:
            if command_class != "get":
                self._record_changes(keys)
            self._record_keys(keys)
