"""Writers of a shared table are killed at random moments; see `tests.support.shared_writers`.

``MEMLITE_TEST_KILLS`` is the number of kills in each test. Kills at every single point in turn
are in tests/unit/memory/shared/test_killed.py.
"""

import os
import subprocess
import sys

import pytest

from memlite.memory.shared import native

in_c = pytest.mark.skipif(native() is None, reason="the table in C is not compiled")
KINDS = ["pure", pytest.param("native", marks=in_c), pytest.param("runner", marks=in_c)]

KILLS = int(os.environ.get("MEMLITE_TEST_KILLS", "75"))


def kill_writers(kind: str, seed: int, megabytes: int, *more: object) -> None:
    arguments = [kind, *map(str, (KILLS, seed, megabytes, *more))]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.shared_writers", *arguments],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"{KILLS} kills")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_torn_or_lost(kind: str) -> None:
    kill_writers(kind, 1, 256)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_lost_while_segments_are_reused(kind: str) -> None:
    kill_writers(kind, 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_store_fails_where_nothing_is_evicted(kind: str) -> None:
    kill_writers(kind, 4, 1, 40, "-M")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_torn_while_others_are_evicted(kind: str) -> None:
    kill_writers(kind, 5, 1, 1500)  # more keys than fit
