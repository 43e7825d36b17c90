"""The answer of an experiment, in sentences: which factors matter."""

import math
from collections.abc import Iterator, Sequence

from memlite.lab import Effect, Estimate, FactorialResult
from memlite.loadtest import checking
from memlite.loadtest.doubt import machine_doubt
from memlite.loadtest.factorial import wording
from memlite.loadtest.factorial.analysis import Analysis, Response
from memlite.loadtest.factorial.design import Design
from memlite.loadtest.factorial.runs import Measured
from memlite.loadtest.resuming import differences

__all__ = ["answer", "doubts", "span", "why_this_model"]

# An interaction that explains less than this appears only in the table.
_WORTH_A_SENTENCE = 0.01
_CLEAR = 1.92  # see `memlite.lab.Models`


def doubts(design: Design, measured: Sequence[Measured]) -> Iterator[str]:
    """Yield reasons to doubt the figures."""
    points = [one.point for one in measured]
    limited = sum(point.generator_limited for point in points)
    if limited:
        yield f"the load generator was the bottleneck in {limited} of {len(points)} runs"
    doubt = machine_doubt(points)
    if doubt:
        yield doubt
    systems = differences([(one.results.machine, one.results.versions) for one in measured])
    if systems:
        yield systems
    if design.repetitions == 1:
        yield "with one repetition, statistical significance is unknown"
    failed = sum(sum(point.errors.values()) for point in points)
    if failed:
        yield f"{failed:,} requests failed"
    found = [doubt for point in points for doubt in checking.doubts(point)]
    if found:
        counts = (f"{doubt} in {found.count(doubt)}" for doubt in dict.fromkeys(found))
        yield f"checks of {len(points)} runs found: {', '.join(counts)}"


def answer(design: Design, analysis: Analysis) -> Iterator[str]:
    """Yield the effects of the factors on a response, the most important first.

    Args:
        design: the experiment.
        analysis: the analysis of the response.
    """
    result, levels = analysis.result, {one.name: one.levels for one in design.factors}
    told = [one for one in result.effects if one.significant or not result.error_freedom]
    small = 0.0
    for effect in sorted(told, key=lambda one: -one.variation):
        if len(effect.factors) > 1 and effect.variation < _WORTH_A_SENTENCE:
            small += effect.variation
        elif len(effect.factors) == 1:
            yield _single(effect, result, analysis.response, levels[effect.factors[0]])
        elif len(effect.factors) == 2:
            yield _pair(effect, result, analysis.response, levels)
        else:
            explain = f"explain {wording.share(effect.variation)} of the variation"
            yield f"Together, {_names(effect.factors)} {explain}."
    if small:
        yield f"Other interactions explain {wording.share(small)}."
    without = [one for one in result.effects if one not in told and len(one.factors) == 1]
    if without:
        names = [f"{one.factors[0]} (p = {wording.chance(one.p_value)})" for one in without]
        what = f"{_names(names)} on {analysis.response.phrase}"
        yield f"There is no statistically significant effect of {what}."
    if result.error_freedom:
        yield _errors(result)


def why_this_model(analysis: Analysis) -> str:
    """Return why factors are said to add or to multiply."""
    models = analysis.models
    added, multiplied = models.unexplained
    if multiplied is None:
        return "Factors are assumed to add, because a value of 0 has no logarithm."
    if not models.freedom:
        return (
            "Factors are assumed to add; whether they multiply instead cannot be determined, "
            "because both models fit exactly without interactions."
        )
    verb, other = ("multiply", "add") if models.better.multiplicative else ("add", "multiply")
    clear = "clearly" if abs(models.advantage) >= _CLEAR else "slightly"
    shares = [wording.share(added), wording.share(multiplied)]
    if models.better.multiplicative:
        shares.reverse()
    return (
        f"Factors are assumed to {verb}, which fits {clear} better. Without interactions, factors "
        f"that {verb} leave {shares[0]} of the variation unexplained, and factors that {other} "
        f"{shares[1]}; the log-likelihoods differ by "
        f"{abs(models.advantage):.3g} (a difference of {_CLEAR} or more is clear)."
    )


def _single(
    effect: Effect, result: FactorialResult, response: Response, levels: Sequence[str]
) -> str:
    (name,) = effect.factors
    explains = f"explains {wording.share(effect.variation)} of the variation"
    if len(levels) == 2:
        does = _does(result.change(name, 0, 1), result, response)
        return f"Changing {name} from {levels[0]} to {levels[1]} {does}; it {explains}."
    changes = [
        f"to {level} {_does(result.change(name, 0, number), result, response, briefly=number > 1)}"
        for number, level in enumerate(levels)
        if number
    ]
    return f"Changing {name} from {levels[0]} {_names(changes)}; it {explains}."


def _does(
    found: Estimate, result: FactorialResult, response: Response, *, briefly: bool = False
) -> str:
    """Return the effect of a change, such as "multiplies throughput by 3.39 (2.94 to 3.92)"."""
    what = "it" if briefly else response.phrase
    up, size = found.value >= 0, abs(found.value)
    if result.multiplicative:
        does = f"multiplies {what} by {wording.ratio(found.value)}"
    else:
        does = f"{'raises' if up else 'lowers'} {what} by {response.text(size)}"
    if math.isinf(found.high):
        return does
    if result.multiplicative:
        return f"{does} ({wording.ratio(found.low)} to {wording.ratio(found.high)})"
    low, high = (found.low, found.high) if up else (-found.high, -found.low)
    return f"{does} ({span(response.text(low), response.text(high))})"


def span(low: str, high: str) -> str:
    """Return "4.97 to 5.01 ms", or "990 µs to 1.01 ms" if units differ."""
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def _pair(
    effect: Effect,
    result: FactorialResult,
    response: Response,
    levels: dict[str, tuple[str, ...]],
) -> str:
    """Return how the effect of one factor depends on the other one."""
    alone = {one.factors[0]: one.variation for one in result.effects if len(one.factors) == 1}
    changed, other = sorted(effect.factors, key=lambda name: -alone[name])
    last = len(levels[changed]) - 1
    parts = []
    for number, level in enumerate(levels[other]):
        does = _does(
            result.change(changed, 0, last, {other: number}), result, response, briefly=number > 0
        )
        parts.append(f"with {other} {level} it {does}")
    first, end = levels[changed][0], levels[changed][last]
    return (
        f"The effect of {changed} depends on {other}: from {first} to {end}, {_names(parts)}. That "
        f"explains {wording.share(effect.variation)} of the variation."
    )


def _errors(result: FactorialResult) -> str:
    spread = result.error_deviation
    text = f"Differences between repetitions explain {wording.share(result.error_variation)}"
    if result.multiplicative:
        return f"{text}: their standard deviation is {math.expm1(spread):.1%}."
    return f"{text} of the variation."


def _names(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
