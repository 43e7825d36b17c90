"""The results of analysing a factorial experiment."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memlite.lab.estimate import Estimate

__all__ = ["Effect", "FactorialResult", "Levels", "combinations"]

Levels = tuple[int, ...]
"""A combination of levels: for each factor, the number of its level, from 0."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a factor, or of several together.

    Attributes:
        factors: their names; more than one is an interaction.
        values: the effect at each combination of their levels: the amount added to the response, or
            to its natural logarithm in a multiplicative model. They sum to 0 over the levels of
            each factor.
        reach: half the width of the confidence interval of each value; infinite without degrees of
            freedom for errors.
        variation: the share of all variation that is due to it, from 0 to 1.
        freedom: its degrees of freedom.
        f_statistic: its mean square divided by that of errors; None without degrees of freedom for
            errors.
        p_value: the probability of a statistic at least this large by chance; None likewise.
        significant: whether `p_value` is below the significance level, 1 minus the confidence.
    """

    factors: tuple[str, ...]
    values: Mapping[Levels, float]
    reach: float
    variation: float
    freedom: int
    f_statistic: float | None
    p_value: float | None
    significant: bool

    @property
    def two_levels(self) -> bool:
        """Whether each of its factors has two levels, so that one number describes the effect."""
        return len(self.values) == 1 << len(self.factors)

    @property
    def value(self) -> float:
        """The effect at the high levels, for factors with two levels.

        It is half the difference between the high and the low level.

        Raises:
            ValueError: a factor has more levels.
        """
        if not self.two_levels:
            raise ValueError(f"{' and '.join(self.factors)}: more than two levels")
        return self.values[(1,) * len(self.factors)]

    @property
    def interval(self) -> tuple[float, float]:
        """The confidence interval of `value`.

        Raises:
            ValueError: a factor has more levels.
        """
        return self.value - self.reach, self.value + self.reach

    @property
    def ratio(self) -> float:
        """The response at the high level divided by that at the low, in a multiplicative model.

        Raises:
            ValueError: a factor has more levels.
        """
        return math.exp(2 * self.value)


@dataclass(frozen=True, slots=True)
class FactorialResult:
    """The analysis of a factorial experiment.

    Attributes:
        factors: their names.
        levels: the number of levels of each.
        repetitions: how often each combination was measured.
        mean: the mean of all responses; of their natural logarithms in a multiplicative model.
        mean_interval: its confidence interval.
        effects: the effects of factors and interactions, single factors first.
        error_variation: the share of the variation that no effect explains, from 0 to 1.
        error_freedom: the degrees of freedom of errors.
        error_deviation: the standard deviation of errors, s; 0 without degrees of freedom.
        quantile: the half-width of an interval in standard errors, by Student's t.
        predicted: the model's prediction for each combination of levels, in the responses' unit.
        residuals: for each combination, in order, the measured values minus the predicted one; of
            the logarithms in a multiplicative model.
        multiplicative: whether the model is fitted to logarithms, so that effects multiply.
    """

    factors: tuple[str, ...]
    levels: tuple[int, ...]
    repetitions: int
    mean: float
    mean_interval: tuple[float, float]
    effects: tuple[Effect, ...]
    error_variation: float
    error_freedom: int
    error_deviation: float
    quantile: float
    predicted: Mapping[Levels, float]
    residuals: Mapping[Levels, tuple[float, ...]]
    multiplicative: bool

    @property
    def runs(self) -> int:
        """The number of measured values."""
        return math.prod(self.levels) * self.repetitions

    def estimate(self, at: Mapping[str, int]) -> Estimate:
        """Return the response with some factors at some levels, on average over all others.

        In a multiplicative model the average is the geometric mean.

        Args:
            at: the number of the level of each of these factors, from 0.
        """
        value, freedom = self.mean, 1
        for effect in self.effects:
            if at.keys() >= set(effect.factors):
                value += effect.values[tuple(at[name] for name in effect.factors)]
                freedom += effect.freedom
        return self._estimate(value, freedom / self.runs)

    def change(
        self, factor: str, before: int, after: int, at: Mapping[str, int] | None = None
    ) -> Estimate:
        """Return the effect of changing a factor: the difference, or the ratio if factors multiply.

        Args:
            factor: its name.
            before: the number of its level before, from 0.
            after: the number of its level afterwards.
            at: the levels of other factors at which to evaluate the change; averaged over factors
                not named.
        """
        others = at or {}
        value, variance = 0.0, 0.0
        for effect in self.effects:
            names = effect.factors
            if factor not in names or not {factor, *others} >= set(names):
                continue
            first, last = (
                tuple(level if name == factor else others[name] for name in names)
                for level in (before, after)
            )
            value += effect.values[last] - effect.values[first]
            freedom = math.prod(
                self.levels[self.factors.index(name)] - 1 for name in names if name != factor
            )
            variance += 2 * self.levels[self.factors.index(factor)] * freedom / self.runs
        return self._estimate(value, variance if before != after else 0.0)

    def _estimate(self, value: float, variance: float) -> Estimate:
        """Return an estimate whose variance is `variance` times that of a single measurement."""
        reach = math.inf
        if self.error_freedom:
            reach = self.quantile * self.error_deviation * math.sqrt(variance)
        bounds = value, value - reach, value + reach
        return Estimate(*map(self.scaled, bounds))

    def scaled(self, value: float) -> float:
        """Convert a value from the model's scale to the responses' scale.

        Args:
            value: a response or difference; in a multiplicative model its logarithm, for which the
                response or ratio is returned.
        """
        return _exp(value) if self.multiplicative else value


def combinations(levels: Sequence[int]) -> list[Levels]:
    """Return all combinations of levels, the last factor changing fastest."""
    return list(itertools.product(*map(range, levels)))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
