"""The API that the page reads."""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from memlite.server.http.api import Api
from memlite.server.http.history import STEP_SECONDS, Recorder
from memlite.telemetry.snapshot import HotKeysStats
from tests.unit.telemetry.samples import snapshot

NO_KEYS = HotKeysStats(sample_interval=1, half_life=60.0, requests=0.0, per_second=0.0, keys=())


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    recorder = Recorder(snapshot, lambda: 100.0)
    recorder.start()
    yield recorder
    recorder.stop()


def api_of(recorder: Recorder) -> Api:
    return Api(recorder, lambda: NO_KEYS, lambda: None, shows_keys=False)


def pass_a_step(recorder: Recorder) -> None:
    for _ in range(STEP_SECONDS):
        recorder._timer.cancel()  # type: ignore[union-attr]
        recorder._tick()


async def body(api: Api, path: str, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = await api.pages()[path](make_mocked_request("GET", path, headers=named))
    assert isinstance(reply, web.Response)
    return reply.body


async def test_the_history_is_made_once_for_each_point(recorder: Recorder) -> None:
    api = api_of(recorder)
    assert json.loads(await body(api, "/api/history"))["points"] == []
    pass_a_step(recorder)
    first = await body(api, "/api/history")
    compressed = await body(api, "/api/history", Accept_Encoding="gzip")
    assert len(json.loads(first)["points"]) == 1
    assert gzip.decompress(compressed) == first
    assert await body(api, "/api/history") is first
    assert await body(api, "/api/history", Accept_Encoding="gzip") is compressed
    pass_a_step(recorder)
    assert len(json.loads(await body(api, "/api/history"))["points"]) == 2


async def test_the_present_is_made_once_for_each_snapshot(recorder: Recorder) -> None:
    api = api_of(recorder)
    first = await body(api, "/api/now")
    assert json.loads(first)["troubles"] == []
    assert await body(api, "/api/now") is first
    pass_a_step(recorder)
    assert await body(api, "/api/now") is not first
