"""How far a move is: a bar on a terminal, lines elsewhere."""

import io
from collections.abc import Callable

import pytest

from memlite.cluster.mover import progress as displays
from memlite.cluster.mover.pace import Pace
from memlite.cluster.mover.progress import Progress, progress_display


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that moves the clock of displays."""
    now = [100.0]
    monkeypatch.setattr(Progress.__init__, "__defaults__", (lambda: now[0],))

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    return pass_time


def moved(display: Progress, pass_time: Callable[[float], None]) -> None:
    display.step("phase move: moving items")
    display.begin(1000)
    for _ in range(4):
        pass_time(2)
        display.advance(100, 1024)
    display.close()


def test_lines(pass_time: Callable[[float], None]) -> None:
    stream = io.StringIO()
    moved(progress_display(quiet=False, stream=stream), pass_time)
    assert stream.getvalue().splitlines() == [
        "phase move: moving items",
        "  300 of 1,000 items, 3.0 KiB, 50/s, 0:00:14 left",
    ]


def test_a_bar(pass_time: Callable[[float], None]) -> None:
    stream = Terminal()
    moved(progress_display(quiet=False, stream=stream), pass_time)
    shown = stream.getvalue().split("\r\033[K")
    assert shown[1] == "phase move: moving items"
    assert shown[-2].startswith("moving [########------------]  40% 400 of 1,000 items, 4.0 KiB, 5")
    assert max(map(len, shown)) < displays._NARROW
    assert shown[-1] == "", "the line is empty at the end"


def test_quiet(pass_time: Callable[[float], None]) -> None:
    stream = io.StringIO()
    display = progress_display(quiet=True, stream=stream)
    moved(display, pass_time)
    assert not stream.getvalue()
    assert (display.items, display.total) == (400, 1000)


async def test_a_rate_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        waited.append(seconds)
        now += seconds

    monkeypatch.setattr("memlite.cluster.mover.pace.asyncio.sleep", sleep)
    pace = Pace(100, lambda: now)
    for _ in range(11):
        await pace.wait(10)
    assert now == pytest.approx(1.0)
    now += 60  # a pause is made up for, but not all of it
    for _ in range(11):
        await pace.wait(10)
    assert now == pytest.approx(61.0)
    fast = Pace(0, lambda: now)
    waited.clear()
    for _ in range(100):
        await fast.wait(1000)
    assert not waited
