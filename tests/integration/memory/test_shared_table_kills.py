"""Writers of a shared table are killed at random moments; see `tests.support.shared_writers`.

``MEMLITE_TEST_KILLS`` is how many are killed in each slow test. Kills at one point after the other
are in tests/unit/memory/shared/test_killed.py.
"""

import os
import subprocess
import sys

import pytest

from memlite.memory.shared import native

in_c = pytest.mark.skipif(native() is None, reason="the table in C is not compiled")
KINDS = ["pure", pytest.param("native", marks=in_c), pytest.param("runner", marks=in_c)]

KILLS = int(os.environ.get("MEMLITE_TEST_KILLS", "150"))
MORE_THAN_FITS = (1, 1500)
"""Megabytes, and keys of each worker."""


def kill_writers(kind: str, kills: int, seed: int, *more: object) -> None:
    arguments = [kind, *map(str, (kills, seed, *more))]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.shared_writers", *arguments],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"{kills} kills")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_torn_and_none_is_lost(kind: str) -> None:
    kill_writers(kind, 60, 1, 256)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_none_is_lost_while_segments_are_used_again(kind: str) -> None:
    kill_writers(kind, 60, 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_store_fails_where_nothing_is_evicted(kind: str) -> None:
    kill_writers(kind, 60, 4, 1, 40, "-M")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_torn_while_others_are_evicted(kind: str) -> None:
    kill_writers(kind, 60, 5, *MORE_THAN_FITS)


@pytest.mark.slow
@pytest.mark.parametrize("how", [(256,), (1,), (1, 40, "-M"), MORE_THAN_FITS])
@pytest.mark.parametrize("kind", KINDS)
def test_many_kills(kind: str, how: tuple[object, ...]) -> None:
    kill_writers(kind, KILLS, 3, *how)
