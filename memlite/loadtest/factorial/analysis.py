"""The responses measured in each run, and how the factors affect them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.lab import FactorialResult, Models, compare_models
from memlite.lab.factorial_result import Levels
from memlite.loadtest.factorial.design import Design
from memlite.loadtest.factorial.runs import Measured
from memlite.loadtest.results import Point
from memlite.loadtest.units import duration, grouped

__all__ = ["RESPONSES", "Analysis", "Response", "analyse"]


@dataclass(frozen=True, slots=True)
class Response:
    """A quantity measured in each run.

    Attributes:
        name: its name in files.
        words: its name in a title.
        phrase: its name in a sentence.
        unit: its unit, for the head of a table.
        text: formats a value with its unit.
        of: returns it for a measurement.
    """

    name: str
    words: str
    phrase: str
    unit: str
    text: Callable[[float], str]
    of: Callable[[Point], float]


RESPONSES: Final = (
    Response(
        "throughput",
        "throughput",
        "throughput",
        "operations per second",
        lambda value: f"{grouped(value)} operations per second",
        lambda point: point.throughput.mean,
    ),
    Response(
        "response_time",
        "mean response time",
        "the mean response time",
        "µs",
        duration,
        lambda point: point.response["all"].mean,
    ),
    Response(
        "p99",
        "99th percentile of response times",
        "the 99th percentile of response times",
        "µs",
        duration,
        lambda point: point.response["all"].p99,
    ),
)


@dataclass(frozen=True, slots=True)
class Analysis:
    """The analysis of a response.

    Attributes:
        response: the response.
        models: its additive and its multiplicative model.
    """

    response: Response
    models: Models

    @property
    def result(self) -> FactorialResult:
        """The model that fits better."""
        return self.models.better


def analyse(design: Design, measured: Sequence[Measured]) -> list[Analysis]:
    """Analyse each response.

    Args:
        design: the experiment.
        measured: all its runs.
    """
    found = []
    for response in RESPONSES:
        values: dict[Levels, list[float]] = {levels: [] for levels in design.combinations}
        for one in sorted(measured, key=lambda one: one.run.number):
            values[one.run.levels].append(response.of(one.point))
        found.append(Analysis(response, compare_models(design.names, values)))
    return found
