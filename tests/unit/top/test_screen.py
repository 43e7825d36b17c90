"""The effects of keys, and the screen that is drawn."""

import io

import pytest

pytest.importorskip("rich", reason="rich is not installed")

from rich.console import Console

from memlite.top.readings import Figures, HotKey
from memlite.top.screen import View, render
from memlite.top.table import Row

ROWS = [
    Row(f"cache{number}:11211", Figures(gets=number, items=number), hot_keys=[HotKey("hot", 9, 1)])
    for number in range(30)
]


def after(keys: str) -> View:
    view = View()
    for key in keys:
        view = view.after(key)
    return view


def test_keys() -> None:
    assert after("") == View("o", reverse=False, paused=False, interval=1.0, over=False)
    assert after("q").over
    assert after("p").paused
    assert not after("p ").paused
    assert after("r").reverse
    assert after("i").letter == "i"
    assert after("<").letter == "n"
    assert after("<<").letter == "c"
    assert after("o>").letter == "g"
    assert after("xyz\t") == View()


def test_the_interval_has_limits() -> None:
    assert after("+").interval == 2.0
    assert after("-").interval == 0.5
    assert after("+" * 20).interval == 60.0
    assert after("-" * 20).interval == 0.2
    assert View(interval=3.0).after("+").interval == 5.0
    assert View(interval=100.0).after("+").interval == 100.0


def drawn(width: int, height: int, view: View = View()) -> list[str]:  # noqa: B008 - immutable
    out = io.StringIO()
    console = Console(file=out, width=width, height=height or 100)
    console.print(render(ROWS, view, width, height, "12:34:56"))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 50), (80, 24), (80, 10), (200, 50), (40, 10)])
def test_the_screen_fits_the_terminal(width: int, height: int) -> None:
    found = drawn(width, height)
    assert len(found) < height
    assert max(map(len, found)) <= width
    assert found[0].startswith("memlite top  every 1 s")
    if width >= 80:
        assert found[0].endswith("12:34:56")
        assert any(line.startswith("30 of 30 up") for line in found)


def test_hot_keys_are_shown_where_there_is_room() -> None:
    assert any(line.startswith("hot keys") for line in drawn(80, 50))
    assert not any(line.startswith("hot keys") for line in drawn(80, 24))
    assert any(line.startswith("hot keys") for line in drawn(80, 0))


def test_the_screen_says_that_it_is_paused() -> None:
    assert drawn(80, 24, View(paused=True))[0].startswith("memlite top  paused")


def test_a_server_cannot_control_the_terminal() -> None:
    row = Row("cache:1", Figures(), "\x1b[2J\x07 down", [HotKey("\x1b]0;title\x07", 9, 1)])
    shown = render([row, ROWS[1]], View(), 80, 0, "12:34:56")
    output = io.StringIO()
    Console(file=output, width=80, force_terminal=False).print(shown)
    assert "?[2J? down" in output.getvalue()
    assert "\x1b" not in output.getvalue()
