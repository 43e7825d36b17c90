"""Factorial experiments: all combinations of the levels of several factors, with repetitions.

The analysis is that of Jain, *The Art of Computer Systems Performance Analysis* (1991), chapters 17
and 18 for two levels of each factor (2^k·r), and 20 to 23 for any number of levels: the variation
of all measured values is allocated to factors, interactions and errors, and each is compared with
the errors (analysis of variance).
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from memlite.lab.factorial_data import Array, array_of, levels_of
from memlite.lab.factorial_result import Effect, FactorialResult, Levels, combinations

__all__ = ["analyse_factorial"]


def analyse_factorial(
    factors: Sequence[str],
    responses: Mapping[Levels, Sequence[float]],
    *,
    multiplicative: bool = False,
    confidence: float = 0.95,
    order: int | None = None,
) -> FactorialResult:
    """Analyse an experiment in which all combinations of levels were measured equally often.

    Args:
        factors: their names.
        responses: the measured values of each combination of levels, equally many for each. A
            combination gives the number of a level for each factor: 0 for the first, such as the
            low one of two.
        multiplicative: analyse the logarithms of responses, which must be positive.
        confidence: the confidence level of the intervals, of 1.
        order: the largest number of factors in an interaction: 1 for a model without interactions.
            Variation due to larger ones counts as error, which allows intervals without repetitions
            (Jain, chapter 21). None for all.

    Raises:
        ValueError: a combination is missing, or the values cannot be analysed.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, not {confidence:g}")
    order = max(1, len(factors)) if order is None else order
    if order < 1:
        raise ValueError(f"order must be 1 or more, not {order}")
    levels = levels_of(factors, responses)
    values = array_of(levels, responses, multiplicative=multiplicative)
    repetitions = values.shape[-1]
    means: Array = values.mean(axis=-1)
    found = {
        axes: _effect(means, axes)
        for size in range(1, min(order, len(factors)) + 1)
        for axes in itertools.combinations(range(len(factors)), size)
    }
    predicted = sum(found.values(), np.full(means.shape, means.mean()))
    if order >= len(factors):
        predicted = means  # the same, without rounding
    residuals = values - predicted[..., np.newaxis]
    variance = _Variance(values, residuals, found, confidence)
    names = {axes: tuple(factors[axis] for axis in axes) for axes in found}
    mean, reach = float(means.mean()), variance.reach(1)
    return FactorialResult(
        factors=tuple(factors),
        levels=levels,
        repetitions=repetitions,
        mean=mean,
        mean_interval=(mean - reach, mean + reach),
        effects=tuple(
            variance.effect(names[axes], axes, effect, levels) for axes, effect in found.items()
        ),
        error_variation=variance.share(variance.error),
        error_freedom=variance.freedom,
        error_deviation=math.sqrt(variance.mean_square),
        quantile=variance.quantile,
        predicted={
            at: math.exp(predicted[at]) if multiplicative else float(predicted[at])
            for at in combinations(levels)
        },
        residuals={at: tuple(map(float, residuals[at])) for at in combinations(levels)},
        multiplicative=multiplicative,
    )


class _Variance:
    """The variation of measured values, and how much of it is error.

    Attributes:
        error: the sum of the squares of errors.
        freedom: its degrees of freedom.
        mean_square: the first divided by the second; 0 without degrees of freedom.
        quantile: the quantile of Student's t, for intervals.
    """

    def __init__(
        self,
        values: Array,
        residuals: Array,
        found: Mapping[tuple[int, ...], Array],
        confidence: float,
    ) -> None:
        self._runs = values.size
        self._chance = 1 - confidence
        self._explained = {
            axes: float((effect**2).sum()) * self._runs / effect.size
            for axes, effect in found.items()
        }
        self.error = float((residuals**2).sum())
        self._total = math.fsum([*self._explained.values(), self.error])
        used = sum(_freedom(effect.shape) for effect in found.values())
        self.freedom = self._runs - 1 - used
        self.mean_square = self.error / self.freedom if self.freedom else 0.0
        self.quantile = math.inf
        if self.freedom:
            # Imported here, as it takes a while.
            from scipy.special import stdtrit

            self.quantile = float(stdtrit(self.freedom, (1 + confidence) / 2))

    def share(self, squares: float) -> float:
        """Return a sum of squares as a share of all variation."""
        return squares / self._total if self._total else 0.0

    def reach(self, freedom: int) -> float:
        """Return half the width of the interval of the mean, or of an effect (Jain, 20.6, 22.5).

        Args:
            freedom: the degrees of freedom of the effect; 1 for the mean.
        """
        if not self.freedom:
            return math.inf
        return self.quantile * math.sqrt(self.mean_square * freedom / self._runs)

    def effect(
        self, names: tuple[str, ...], axes: tuple[int, ...], effect: Array, levels: Sequence[int]
    ) -> Effect:
        """Return an effect with its statistics."""
        freedom = _freedom(effect.shape)
        statistic, chance = self._test(self._explained[axes] / freedom, freedom)
        own = effect.reshape([levels[axis] for axis in axes])
        return Effect(
            factors=names,
            values={at: float(own[at]) for at in combinations(own.shape)},
            reach=self.reach(freedom),
            variation=self.share(self._explained[axes]),
            freedom=freedom,
            f_statistic=statistic,
            p_value=chance,
            significant=chance is not None and chance < self._chance,
        )

    def _test(self, mean_square: float, freedom: int) -> tuple[float | None, float | None]:
        """Return the statistic of the F test, and the probability of a larger one by chance."""
        if not self.freedom:
            return None, None
        if not self.mean_square:
            return (math.inf, 0.0) if mean_square else (0.0, 1.0)
        from scipy.special import fdtrc

        statistic = mean_square / self.mean_square
        return statistic, float(fdtrc(freedom, self.freedom, statistic))


def _effect(means: Array, axes: Sequence[int]) -> Array:
    """Return an effect: the mean over other factors, minus that over each of its own."""
    for axis in range(means.ndim):
        mean = means.mean(axis=axis, keepdims=True)
        means = means - mean if axis in axes else mean
    return means


def _freedom(shape: Sequence[int]) -> int:
    return math.prod(size - 1 for size in shape if size > 1)
