"""The last hour, in bounded memory."""

import asyncio
from typing import Any

import pytest

from memlite.server.http import history
from memlite.server.http.history import POINTS, STEP_SECONDS, Recorder
from tests.unit.telemetry.samples import snapshot


class Server:
    """A server that has served one more request at each look."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> Any:
        self.looks += 1
        return snapshot(time=float(self.looks), get_hits=self.looks)


@pytest.fixture
async def parts() -> Any:
    server = Server()
    recorder = Recorder(server)
    recorder.start()
    yield server, recorder
    recorder.stop()


def pass_seconds(recorder: Recorder, seconds: int) -> None:
    for _ in range(seconds):
        recorder._timer.cancel()  # type: ignore[union-attr]
        recorder._tick()


async def test_a_point_for_every_step(parts: Any) -> None:
    server, recorder = parts
    pass_seconds(recorder, 3 * STEP_SECONDS)
    assert len(recorder.history) == 3
    assert server.looks == 4  # without followers, one look per step


async def test_memory_is_bounded(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STEP_SECONDS", 1)
    server, recorder = parts
    pass_seconds(recorder, POINTS + 50)
    assert len(recorder.history) == POINTS
    assert recorder.history[-1].figures[0] == server.looks


async def test_followers_are_told_each_second(parts: Any) -> None:
    server, recorder = parts
    stream = recorder.follow()
    told: list[Any] = []
    for _ in range(STEP_SECONDS):
        pass_seconds(recorder, 1)
        while not stream.empty():
            told.append(stream.get_nowait())
    assert told == ["now"] * STEP_SECONDS + ["point"]
    assert server.looks == 1 + STEP_SECONDS
    pass_seconds(recorder, 100)
    assert stream.qsize() <= 2  # events not taken are dropped
    recorder.unfollow(stream)
    assert recorder.followers == 0


async def test_frequent_looks_get_the_same_snapshot() -> None:
    server, now = Server(), 100.0
    recorder = Recorder(server, lambda: now)
    recorder.start()
    for _ in range(5):
        recorder.look()
    assert server.looks == 2  # the first look has no predecessor to compare with
    now += 1
    recorder.look()
    assert server.looks == 3
    recorder.stop()


async def test_followers_are_told_of_the_end(parts: Any) -> None:
    _, recorder = parts
    stream = recorder.follow()
    recorder.stop()
    assert await asyncio.wait_for(stream.get(), 60) is None
