"""The progress of a study: one bar for the measurements of all its runs."""

from memlite.loadtest.factorial.progress import RunProgress
from memlite.loadtest.progress import ProgressDisplay

__all__ = ["ExperimentProgress", "StudyProgress"]


class StudyProgress(ProgressDisplay):
    """Shows the measurements of a run in the bar of the study.

    Args:
        bar: the study's bar, which knows the number of measurements.

    Attributes:
        run: the name of the run, shown before each step of it.
    """

    def __init__(self, bar: ProgressDisplay) -> None:
        self._bar = bar
        self.run = ""

    def expect_measurements(self, measurements: int) -> None:
        """Ignore the number of measurements in the run."""

    def start_step(self, description: str) -> None:
        """Start a step of the run."""
        super().start_step(description)
        self._bar.start_step(f"{self.run}: {description}")

    def show(self, rate: float, p99: float, errors: int) -> None:
        """Show operations per second, the 99th percentile in µs, and the number of errors."""
        self._bar.show(rate, p99, errors)

    def finish_measurement(self) -> None:
        """Count a measurement as finished."""
        self._bar.finish_measurement()

    def message(self, text: str) -> None:
        """Print a permanent line."""
        self._bar.message(text)


class ExperimentProgress(RunProgress):
    """Shows the runs of the experiment in the bar of the study.

    Args:
        study: the progress of the study.
    """

    def __init__(self, study: StudyProgress) -> None:
        super().__init__(quiet=True)
        self._study = study
        self.display = study

    def begin(self, total: int, missing: int) -> None:
        """Ignore the numbers: the study knows them."""

    def start_run(self, description: str) -> None:
        """Start a run."""
        self._study.run = f"experiment, {description}"

    def finish_run(self) -> None:
        """Do nothing: the run's only measurement was counted."""
