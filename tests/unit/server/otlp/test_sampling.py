"""Which requests are traced, by option and environment."""

import pytest

from memlite.core.errors import StartError
from memlite.server.otlp.sampling import traced_one_in


@pytest.mark.parametrize(
    ("option", "sampler", "argument", "every"),
    [
        (None, None, None, 0),
        ("1/100", None, None, 100),
        ("1/100", "always_on", None, 100),
        (None, "always_on", None, 1),
        (None, "parentbased_always_off", "1", 0),
        (None, "traceidratio", None, 1),
        (None, "parentbased_traceidratio", "0.01", 100),
        (None, "traceidratio", "0", 0),
        (None, "traceidratio", "1e-300", 10**9),
        (None, None, "0.5", 0),
    ],
)
def test_share(option: str | None, sampler: str | None, argument: str | None, every: int) -> None:
    pairs = (("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", argument))
    environment = {name: value for name, value in pairs if value is not None}
    assert traced_one_in(option, environment) == every


@pytest.mark.parametrize(
    ("sampler", "argument"), [("xray", "1"), ("traceidratio", "2"), ("traceidratio", "nan")]
)
def test_unknown_samplers_and_invalid_arguments_are_refused(sampler: str, argument: str) -> None:
    with pytest.raises(StartError, match="OTEL_TRACES_SAMPLER"):
        traced_one_in(None, {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument})
