"""Writers of a shared table are killed at random moments; see `tests.support.shared_writers`."""

import subprocess
import sys

import pytest

from memlite.memory.shared import native

KINDS = [
    "pure",
    pytest.param(
        "native",
        marks=pytest.mark.skipif(native() is None, reason="the table in C is not compiled"),
    ),
]


def kill_writers(kind: str, kills: int, seed: int, megabytes: int) -> None:
    arguments = [kind, str(kills), str(seed), str(megabytes)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.shared_writers", *arguments],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"{kills} kills")


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_torn_and_none_is_lost(kind: str) -> None:
    kill_writers(kind, 60, 1, 256)


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_torn_while_segments_are_used_again(kind: str) -> None:
    kill_writers(kind, 60, 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [256, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_kills(kind: str, megabytes: int) -> None:
    kill_writers(kind, 3000, 3, megabytes)
