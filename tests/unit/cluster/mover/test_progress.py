"""Progress of a move: a bar on a terminal, lines elsewhere."""

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
    """Return a function that advances the clock of displays."""
    now = [100.0]
    monkeypatch.setattr(Progress.__init__, "__defaults__", (lambda: now[0],))

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    return pass_time


def moved(display: Progress, pass_time: Callable[[float], None]) -> None:
    display.step("phase move: moving items")
    display.begin("moving", 3, 1000)
    for _ in range(4):
        pass_time(2)
        display.advance(100, 1024)
    display.close()


def test_lines(pass_time: Callable[[float], None]) -> None:
    stream = io.StringIO()
    moved(progress_display(quiet=False, stream=stream), pass_time)
    assert stream.getvalue().splitlines() == [
        "phase move: moving items",
        "  moving: 30%, 300 of 1,000 items, 0:00:14 left, 50/s, 3.0 KiB",
    ]


def test_a_bar(pass_time: Callable[[float], None]) -> None:
    stream = Terminal()
    moved(progress_display(quiet=False, stream=stream), pass_time)
    shown = stream.getvalue().split("\r\033[K")
    assert shown[1] == "phase move: moving items"
    assert shown[-2] == (
        "moving [####--------]  40% 400 of 1,000 items, 0:00:12 left, 50/s, 4.0 KiB"
    )
    assert max(map(len, shown)) < displays._NARROW
    assert shown[-1] == "", "the line is empty at the end"


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (
            120,
            "[########------------]  40% 4,000,000 of 9,999,999 items, 0:00:12 left, 500,000/s, 3",
        ),
        (80, "[####--------]  40% 4,000,000 of 9,999,999 items, 0:00:12 left"),
        (64, "[####--------]  40% 4,000,000 of 9,999,999 items"),
        (40, "[####--------]  40%"),
    ],
)
def test_figures_that_do_not_fit_are_left_out(
    pass_time: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, columns: int, line: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    display = progress_display(quiet=False, stream=stream)
    display.begin("moving", 3, 9_999_999)
    pass_time(8)
    display.advance(4_000_000, 4_000_000_000)
    shown = stream.getvalue().split("\r\033[K")[-1]
    assert shown.startswith(f"moving {line}")
    assert len(shown) < columns


def test_a_step_that_counts_items_node_by_node(pass_time: Callable[[float], None]) -> None:
    """The bar neither stalls nor moves back, however many items the nodes turn out to have."""
    stream = Terminal()
    display = progress_display(quiet=False, stream=stream)
    display.begin("copying", 2)
    shares = []
    for name, items in (("one", 400), ("two", 4)):
        display.node(name, items)
        shares.append(display.share())
        for _ in range(4):
            pass_time(1)
            display.advance(items // 4, 10)
            shares.append(display.share())
    assert shares == [0, 0.125, 0.25, 0.375, 0.5, 0.5, 0.625, 0.75, 0.875, 1]
    display.close()
    shown = stream.getvalue().split("\r\033[K")
    assert shown[1] == "copying [------------]   0% node 1 of 2"
    assert shown[-2].startswith("copying [############] 100% node 2 of 2, 404 items, 50/s")
    display.begin("removing", 2)
    display.node("one", 0)
    assert display.share() == 0.5, "the first node has nothing to remove"
    display.node("one", 10)
    assert display.share() == 0, "the first node is visited again, and has items now"


def test_earlier_progress_does_not_count_for_the_rate(
    pass_time: Callable[[float], None],
) -> None:
    display = progress_display(quiet=True)
    display.begin("moving", 3, 1000, 600)
    assert display.status() == ["600 of 1,000 items"]
    pass_time(10)
    display.advance(200, 0)
    assert display.status() == ["800 of 1,000 items", "0:00:10 left", "20/s"]


def test_notes_stay_on_a_terminal(pass_time: Callable[[float], None]) -> None:
    stream = Terminal()
    display = progress_display(quiet=False, stream=stream)
    display.begin("moving", 1, 1)
    display.note("node b is gone")
    pass_time(1)
    display.advance(1, 0)
    assert "\r\033[Knode b is gone\n\r\033[Kmoving" in stream.getvalue()
    assert stream.getvalue().endswith("100% 1 of 1 item, 1/s")


def test_quiet(pass_time: Callable[[float], None]) -> None:
    stream = io.StringIO()
    display = progress_display(quiet=True, stream=stream)
    moved(display, pass_time)
    assert not stream.getvalue()
    assert (display.items, display.total) == (400, 1000)


async def test_the_rate_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
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
    now += 60  # only part of a pause is made up for
    for _ in range(11):
        await pace.wait(10)
    assert now == pytest.approx(61.0)
    fast = Pace(0, lambda: now)
    waited.clear()
    for _ in range(100):
        await fast.wait(1000)
    assert not waited
