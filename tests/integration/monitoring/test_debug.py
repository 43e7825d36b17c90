"""Views of a server's internal state at /debug/."""

import asyncio
import http.client
import json
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

from aiohttp import web

from memlite.server.http.access import Access
from memlite.server.http.debug import Debug
from tests.support.servers import running
from tests.support.waiting import wait_until

TOKEN = "correct-horse-battery-staple"


def ask(port: int, path: str, token: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


class Elsewhere:
    """A request from another machine, with only the attributes that matter here."""

    def __init__(self, remote: str | None) -> None:
        self.remote = remote
        self.query: dict[str, str] = {}


@pytest.mark.parametrize("kind", ["memlite", "memlite-asyncio"])
def test_all_views(kind: str) -> None:
    with running(kind, "--http", "0", "--http-debug") as server:
        port = server.http_port
        status, stacks = ask(port, "/debug/stacks")
        assert status == 200
        assert b"thread MainThread" in stacks
        assert b"\ntask " in stacks
        assert b"_stacks" in stacks  # itself
        memory = json.loads(ask(port, "/debug/memory")[1])
        assert memory["allocated_blocks"] > 1000
        assert memory["resident_bytes"] > memory["heap"].get("used_bytes", 0) // 2 > 1000
        assert len(memory["collector"]["generations"]) == 3
        assert wait_until(lambda: json.loads(ask(port, "/debug/loop")[1])["samples"] > 2)
        lags = json.loads(ask(port, "/debug/loop")[1])
        assert 0 <= lags["p50_seconds"] <= lags["p99_seconds"] <= lags["max_seconds"]
        assert b"function calls" in ask(port, "/debug/profile?seconds=0.1")[1]
        for wrong in ("0", "61", "nan", "x"):
            assert ask(port, f"/debug/profile?seconds={wrong}")[0] == 400
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()


async def test_one_profile_at_a_time() -> None:
    debug = Debug(Access(None, ()))
    profile = debug.pages()["/debug/profile"]
    request = Elsewhere("127.0.0.1")
    request.query["seconds"] = "0.05"
    first = asyncio.create_task(profile(request))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    second = await profile(request)  # type: ignore[arg-type]
    assert second.status == 409
    reply = await first
    assert isinstance(reply, web.Response)
    assert reply.status == 200
    assert "function calls" in str(reply.text)
    assert "_profile" in str(reply.text)  # the second one
    assert (await profile(request)).status == 200  # type: ignore[arg-type]


def test_only_with_the_flag_and_the_token(tmp_path: Path) -> None:
    with running("memlite", "--http", "0") as server:
        assert ask(server.http_port, "/debug/stacks")[0] == 404
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    arguments = ("--http", "0", "--http-debug", "--http-token-file", str(file))
    with running("memlite", *arguments) as server:
        for path in ("stacks", "memory", "loop", "profile"):
            assert ask(server.http_port, f"/debug/{path}")[0] == 401
        assert ask(server.http_port, "/debug/stacks", TOKEN)[0] == 200


@pytest.mark.parametrize(
    ("remote", "status"),
    [
        ("127.0.0.1", 200),
        ("::1", 200),
        ("127.8.8.8", 200),
        ("10.0.0.1", 403),
        ("::ffff:10.0.0.1", 403),
        (None, 403),
        ("", 403),
    ],
)
async def test_without_a_token_only_on_this_machine(remote: str | None, status: int) -> None:
    pages = Debug(Access(None, ())).pages()
    for name in ("stacks", "memory"):
        reply = await pages[f"/debug/{name}"](Elsewhere(remote))  # type: ignore[arg-type]
        assert isinstance(reply, web.Response)
        assert reply.status == status
