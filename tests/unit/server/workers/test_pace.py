"""How often datagrams may query all workers."""

import itertools
import time
from collections.abc import Iterator

import pytest

from memlite.server.workers.board import Board
from memlite.server.workers.pace import AT_ONCE, Pace


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board(2)
    yield board
    for bell in itertools.chain.from_iterable(board._bells):
        bell.close()


def test_a_few_at_once_and_then_one_at_a_time(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 10**12
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    first, second = Pace(board), Pace(board)
    admitted = [pace.admits() for _ in range(AT_ONCE) for pace in (first, second)]
    assert admitted == [True] * AT_ONCE + [False] * AT_ONCE
    now += 10**9 // 20
    assert [second.admits(), first.admits()] == [True, False]
    now += 10**10
    assert sum(first.admits() for _ in range(100)) == AT_ONCE, "no more are saved up"
