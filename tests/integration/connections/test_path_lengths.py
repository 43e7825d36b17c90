"""The number of functions and files that a request passes through; see docs/performance.md.

Paths grow by one function at a time, and each seems worth it. These limits are half of the former
lengths.
"""

import asyncio
import contextlib
import sys
from collections import Counter
from pathlib import Path

import pytest

import memlite
from memlite.config import Config
from memlite.core.build import running_build
from memlite.server.connections import native_receiver
from memlite.server.connections.listeners import listen_tcp
from memlite.server.execution import runner
from memlite.server.server import Server

pytestmark = pytest.mark.skipif(
    running_build() == "compiled", reason="compiled functions cannot be traced"
)

ROOT = str(Path(memlite.__file__).parent) + "/"
ROUNDS = 21
TIMERS = "TimeLimits._look"  # on a busy machine, it is due in each round


class Tracer:
    """Records the memlite functions that this thread calls, except for those of timers."""

    def __init__(self):
        self.functions = set()

    def __call__(self, frame, event, argument):
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(ROOT)
            and not code.co_qualname.startswith(TIMERS)
        ):
            self.functions.add((code.co_filename.removeprefix(ROOT), code.co_qualname))

    @contextlib.contextmanager
    def tracing(self):
        before = sys.getprofile()
        self.functions = set()
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)


async def path_of(url, first, reply_to_first, request, reply):
    """Return the functions, with their files, from the arrival of a request to its reply.

    Ticks also run in between, but not in most rounds.
    """
    listeners = listen_tcp(["127.0.0.1"], 0, 100)
    server = Server(Config(backend=url), listeners)
    ready = asyncio.Event()
    task = asyncio.ensure_future(server.run(ready.set))
    await ready.wait()
    reader, writer = await asyncio.open_connection("127.0.0.1", listeners[0].port)
    calls, tracer = Counter(), Tracer()
    try:
        async with asyncio.timeout(60):
            writer.write(first)
            assert await reader.readexactly(len(reply_to_first)) == reply_to_first
            for _ in range(ROUNDS):
                with tracer.tracing():
                    writer.write(request)
                    assert await reader.readexactly(len(reply)) == reply
                calls.update(tracer.functions)
    finally:
        writer.close()
        server.request_stop()
        await task
    return sorted(function for function, times in calls.items() if times > ROUNDS / 2)


def check(path, *, functions, files):
    shown = "\n".join(f"{file} {function}" for file, function in path)
    assert ("server/connections/connection.py", "Connection.data_received") in path, shown
    assert len(path) <= functions, shown
    assert len({file for file, _ in path}) <= files, shown


async def test_a_set_that_overwrites_in_a_file(tmp_path):
    stored = b"STORED\r\n"
    url = f"file://{tmp_path}/cache.json"
    path = await path_of(url, b"set a 0 0 1\r\nx\r\n", stored, b"set a 0 0 1\r\ny\r\n", stored)
    check(path, functions=22, files=8)
    assert ("backends/jsonfile/journal.py", "Journal._end_group") in path


async def test_a_get_from_a_bucket():
    pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
    pytest.importorskip("google.cloud.storage", reason="the emulator needs memlite-cache[gcs]")
    from memlite.testing.gcs_emulator import emulator_process

    with emulator_process("--bucket", "bucket") as endpoint:
        path = await path_of(
            f"gs://bucket/prefix?endpoint={endpoint}",
            b"set a 0 0 1\r\nx\r\n",
            b"STORED\r\n",
            b"get a\r\n",
            b"VALUE a 0 1\r\nx\r\nEND\r\n",
        )
    check(path, functions=25, files=10)
    assert ("backends/gcs/codec.py", "decode") in path


@pytest.mark.parametrize("native", [True, False])
async def test_a_get_from_memory(native, monkeypatch):
    hit = b"VALUE a 0 1\r\nx\r\nEND\r\n"
    if not native:
        monkeypatch.setattr(runner, "NATIVE", None)
    path = await path_of("memory://", b"set a 0 0 1\r\nx\r\n", b"STORED\r\n", b"get a\r\n", hit)
    if native and native_receiver.NATIVE is not None:
        assert path == []  # all of it is in C
    else:
        check(path, functions=1, files=1)
