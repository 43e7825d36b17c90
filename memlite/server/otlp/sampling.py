"""Sampling of the requests to trace."""

from collections.abc import Mapping
from typing import Final

from memlite.core.errors import StartError

__all__ = ["traced_one_in"]

_SAMPLER: Final = "OTEL_TRACES_SAMPLER"
_ARGUMENT: Final = "OTEL_TRACES_SAMPLER_ARG"
_MOST: Final = 10**9


def traced_one_in(option: str | None, environment: Mapping[str, str]) -> int:
    """Return N to trace one request in N; 0 for none.

    Args:
        option: ``--trace-sample``; None to use the environment.
        environment: the environment.

    Raises:
        StartError: the sampler or its argument in the environment is not supported.
    """
    if option is not None:
        return int(option.partition("/")[2])
    sampler = environment.get(_SAMPLER, "").removeprefix("parentbased_")
    share = environment.get(_ARGUMENT, "1")
    if sampler in ("", "always_off"):
        return 0
    if sampler == "always_on":
        return 1
    if sampler != "traceidratio":
        raise StartError(f"{_SAMPLER}: must be always_on, always_off or traceidratio")
    try:
        ratio = float(share)
    except ValueError:
        ratio = -1
    if not 0 <= ratio <= 1:
        raise StartError(f"{_ARGUMENT}: must be a share from 0 to 1, not {share!r}")
    return min(round(1 / ratio), _MOST) if ratio else 0
