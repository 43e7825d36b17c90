"""How long the operations of a store take."""

from memlite.telemetry.counters import LatencyHistogram

__all__ = ["OperationTimes"]


class OperationTimes:
    """Histograms of durations in nanoseconds, by operation and outcome.

    Attributes:
        histograms: by the names of an operation and of an outcome, of which there are few.
    """

    def __init__(self) -> None:
        self.histograms: dict[tuple[str, str], LatencyHistogram] = {}

    def record(self, operation: str, outcome: str, nanoseconds: int) -> None:
        """Add a duration."""
        name = (operation, outcome)
        histogram = self.histograms.get(name)
        if histogram is None:
            histogram = self.histograms[name] = LatencyHistogram()
        histogram.record(nanoseconds)

    def reset(self) -> None:
        """Discard all durations (``stats reset``)."""
        self.histograms.clear()
