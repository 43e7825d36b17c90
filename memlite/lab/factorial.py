"""Factorial experiments with two levels of each factor and repetitions: 2^k·r designs.

The analysis is that of Jain, *The Art of Computer Systems Performance Analysis* (1991), chapters 17
and 18: each effect is half of what changing its factor from the low to the high level adds to the
response, and the variation of all measured values is allocated to effects and errors.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Effect", "FactorialResult", "analyse_factorial"]

_Levels = tuple[int, ...]

_MOST_FACTORS = 16
_TOO_LARGE = 1e150


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a factor, or of several together.

    Attributes:
        factors: their names; more than one is an interaction.
        value: half of the difference between the high and the low level; of the natural logarithms
            in a multiplicative model.
        interval: its confidence interval; infinite without repetitions.
        variation: the share of all variation that is due to it, of 1.
    """

    factors: tuple[str, ...]
    value: float
    interval: tuple[float, float]
    variation: float

    @property
    def significant(self) -> bool:
        """Whether its confidence interval does not contain 0."""
        return not self.interval[0] <= 0 <= self.interval[1]

    @property
    def ratio(self) -> float:
        """In a multiplicative model: the response at the high level divided by that at the low."""
        return math.exp(2 * self.value)


@dataclass(frozen=True, slots=True)
class FactorialResult:
    """The analysis of a factorial experiment.

    Attributes:
        mean: of all responses; of their natural logarithms in a multiplicative model.
        mean_interval: its confidence interval.
        effects: of factors and interactions, those of single factors first.
        error_variation: the share of the variation that no effect explains, of 1.
        predicted: what the model says for each combination of levels, in the responses' unit.
        residuals: for each combination, in order, the measured values minus the predicted one; of
            the logarithms in a multiplicative model.
        multiplicative: whether the model is one of logarithms, in which factors multiply.
    """

    mean: float
    mean_interval: tuple[float, float]
    effects: tuple[Effect, ...]
    error_variation: float
    predicted: Mapping[_Levels, float]
    residuals: Mapping[_Levels, tuple[float, ...]]
    multiplicative: bool


def analyse_factorial(
    factors: Sequence[str],
    responses: Mapping[_Levels, Sequence[float]],
    *,
    multiplicative: bool = False,
    confidence: float = 0.95,
) -> FactorialResult:
    """Analyse a 2^k·r experiment.

    Args:
        factors: their names.
        responses: the measured values of each combination of levels, all as many. A combination has
            0 or 1 for each factor: its low or high level.
        multiplicative: analyse the logarithms of responses, which must be positive.
        confidence: of the intervals, of 1.

    Raises:
        ValueError: a combination is missing, or the values cannot be analysed.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, not {confidence:g}")
    combinations = list(itertools.product((0, 1), repeat=len(factors)))
    _check(factors, combinations, responses, multiplicative=multiplicative)
    values = {
        levels: [math.log(one) if multiplicative else one for one in responses[levels]]
        for levels in combinations
    }
    repetitions = len(values[combinations[0]])
    means = {levels: math.fsum(of) / repetitions for levels, of in values.items()}
    residuals = {levels: tuple(one - means[levels] for one in of) for levels, of in values.items()}
    runs = len(combinations) * repetitions
    error = math.fsum(one**2 for of in residuals.values() for one in of)
    reach = _reach(error, len(combinations), repetitions, confidence)
    found: list[tuple[tuple[str, ...], float]] = []
    for size in range(len(factors) + 1):
        for chosen in itertools.combinations(range(len(factors)), size):
            contrast = math.fsum(_sign(levels, chosen) * mean for levels, mean in means.items())
            names = tuple(factors[index] for index in chosen)
            found.append((names, contrast / len(combinations)))
    mean, effects = found[0][1], found[1:]
    explained = [runs * value**2 for _, value in effects]
    total = math.fsum([*explained, error])
    return FactorialResult(
        mean,
        (mean - reach, mean + reach),
        tuple(
            Effect(names, value, (value - reach, value + reach), own / total if total else 0.0)
            for (names, value), own in zip(effects, explained, strict=True)
        ),
        error / total if total else 0.0,
        {levels: math.exp(one) if multiplicative else one for levels, one in means.items()},
        residuals,
        multiplicative,
    )


def _check(
    factors: Sequence[str],
    combinations: Sequence[_Levels],
    responses: Mapping[_Levels, Sequence[float]],
    *,
    multiplicative: bool,
) -> None:
    if not 0 < len(factors) <= _MOST_FACTORS or len(set(factors)) < len(factors):
        raise ValueError(f"1 to {_MOST_FACTORS} factors with different names are needed")
    if set(responses) != set(combinations):
        raise ValueError(
            f"responses must have all {len(combinations)} combinations of levels, and no others"
        )
    counts = {len(values) for values in responses.values()}
    if len(counts) > 1 or 0 in counts:
        raise ValueError("all combinations must have the same number of values, at least one")
    if not all(abs(one) < _TOO_LARGE for values in responses.values() for one in values):
        raise ValueError("responses must be numbers of a size that can be squared")
    if multiplicative and min(map(min, responses.values())) <= 0:
        raise ValueError("a multiplicative model needs positive responses")


def _sign(levels: _Levels, chosen: Sequence[int]) -> int:
    """Return the sign of a combination of levels in the column of an effect."""
    return -1 if sum(1 - levels[index] for index in chosen) % 2 else 1


def _reach(error: float, combinations: int, repetitions: int, confidence: float) -> float:
    """Return half of the width of an effect's confidence interval."""
    freedom = combinations * (repetitions - 1)
    if not freedom:
        return math.inf
    # Imported here, as it takes a while.
    from scipy.special import stdtrit

    deviation = math.sqrt(error / freedom / (combinations * repetitions))
    return float(stdtrit(freedom, (1 + confidence) / 2)) * deviation
