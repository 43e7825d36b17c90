"""Determines whether the factors of an experiment add to the response, or multiply it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memlite.lab.factorial import analyse_factorial
from memlite.lab.factorial_result import FactorialResult, Levels

__all__ = ["Models", "compare_models"]

# A residual variation below this share of all variation is due to rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Models:
    """Both analyses of an experiment.

    Attributes:
        additive: the model in which factors add.
        multiplicative: the model in which factors multiply; None if a response is not positive.
        advantage: the logarithm of the likelihood of factors that multiply and do not interact,
            less that of factors that add and do not interact. At 1.92 or more (or -1.92 or less),
            the favoured model would reject the other at 95% (Box and Cox).
        unexplained: the shares of variation that factors leave to interactions and errors in the
            two models, the additive one first.
        freedom: the degrees of freedom of the unexplained variation. Without any, both models fit
            exactly, so neither can be preferred; the advantage is 0.
    """

    additive: FactorialResult
    multiplicative: FactorialResult | None
    advantage: float
    unexplained: tuple[float, float | None]
    freedom: int

    @property
    def better(self) -> FactorialResult:
        """The model under which the measured values are more likely."""
        if self.multiplicative is not None and self.advantage > 0:
            return self.multiplicative
        return self.additive


def compare_models(
    factors: Sequence[str],
    responses: Mapping[Levels, Sequence[float]],
    *,
    confidence: float = 0.95,
) -> Models:
    """Analyse an experiment with an additive and with a multiplicative model.

    Models are compared without interactions: the one with the right scale needs none, and its
    errors have the same size everywhere. The comparison is that of two powers, 1 and 0, in G. Box
    and D. Cox, "An Analysis of Transformations" (1964); Jain, section 15.4.

    Args:
        factors: as of `memlite.lab.analyse_factorial`.
        responses: likewise.
        confidence: likewise.

    Raises:
        ValueError: the values cannot be analysed.
    """
    additive = analyse_factorial(factors, responses, confidence=confidence)
    values = [one for of in responses.values() for one in of]
    freedom = (
        len(values) - 1 - sum(one.freedom for one in additive.effects if len(one.factors) == 1)
    )
    if min(values) <= 0:
        return Models(additive, None, 0.0, (_unexplained(additive), None), freedom)
    multiplicative = analyse_factorial(
        factors, responses, multiplicative=True, confidence=confidence
    )
    logs = [math.log(one) for one in values]
    squares = [
        _squares(values) * _unexplained(additive),
        _squares(logs) * _unexplained(multiplicative),
    ]
    least = [_ROUNDING * _squares(values), _ROUNDING * _squares(logs)]
    advantage = 0.0
    if freedom and all(least):
        one, other = (max(pair) for pair in zip(squares, least, strict=True))
        advantage = len(values) / 2 * math.log(one / other) - math.fsum(logs)
    shares = _unexplained(additive), _unexplained(multiplicative)
    return Models(additive, multiplicative, advantage, shares, freedom)


def _unexplained(result: FactorialResult) -> float:
    """Return the share of variation that single factors do not explain."""
    together = (one.variation for one in result.effects if len(one.factors) > 1)
    return math.fsum([result.error_variation, *together])


def _squares(values: Sequence[float]) -> float:
    """Return the sum of the squares of differences from the mean."""
    mean = math.fsum(values) / len(values)
    return math.fsum((one - mean) ** 2 for one in values)
