"""The promises of backends, and their description in the reference."""

import pytest

from memlite.backends.promises import promise_of
from tests.support.paths import ROOT

SCHEMES = ("memory", "file", "gs", "valkey")


def row(name: str) -> list[str]:
    """Return the cells of a row of the reference's first comparison, in the order of SCHEMES."""
    page = (ROOT / "docs" / "reference" / "backends.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.split("|")[2:6]]


@pytest.mark.parametrize(
    ("attribute", "name", "broken"),
    [
        ("survives_crash", "a killed process loses", "everything"),
        ("survives_machine", "a machine that is lost with its disk loses", ("everything", "what")),
        ("shared", "several servers share it", "no"),
    ],
)
def test_the_reference_says_the_same(attribute: str, name: str, broken: str) -> None:
    said = [not cell.startswith(broken) for cell in row(name)]
    assert [getattr(promise_of(scheme), attribute) for scheme in SCHEMES] == said


def test_other_backends_make_no_known_promise() -> None:
    assert promise_of("sqlite") is None
    assert promise_of("gcs") == promise_of("gs")
    assert promise_of("rediss") == promise_of("valkey")
