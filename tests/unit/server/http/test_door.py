"""Admission to the HTTP port when the maximum number of connections is open."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

from memlite.server.http import door as module
from memlite.server.http.door import Door
from memlite.server.http.guard import Guard


@dataclass
class Listener:
    sock: socket.socket
    label: str = "http:127.0.0.1:0"
    tls: str = ""


class Place:
    """A door with two places, and the connections that entered it, in order."""

    def __init__(self, sock: socket.socket) -> None:
        self.door = Door([Listener(sock)], lambda _: pytest.fail("no TLS"), self._make)
        self.entered: asyncio.Queue[asyncio.Protocol] = asyncio.Queue()
        self.address = sock.getsockname()

    def _make(self) -> asyncio.Protocol:
        entered = self.entered

        class Inner(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                entered.put_nowait(self)

        return Inner()

    async def enter(self) -> tuple[Guard, asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.address)
        guard = self.door.guard_of(await asyncio.wait_for(self.entered.get(), 60))
        assert guard is not None
        return guard, reader, writer


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 2)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setblocking(False)
        place = Place(sock)
        place.door.open()
        yield place
        place.door.close()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), 60) == b""
    except ConnectionError:
        return True


async def test_the_longest_idle_connection_makes_room(place: Place) -> None:
    (first, _, writer1), (second, reader2, writer2) = await place.enter(), await place.enter()
    first.since, second.since = 2.0, 1.0
    third, _, writer3 = await place.enter()
    assert await is_closed(reader2)
    assert place.door.guard_of(first.inner) is first
    assert place.door.guard_of(third.inner) is third
    assert (place.door.displaced, place.door.refused) == (1, 0)
    for writer in (writer1, writer2, writer3):
        writer.close()


async def test_an_authenticated_connection_stays(place: Place) -> None:
    (first, _, writer1), (second, reader2, writer2) = await place.enter(), await place.enter()
    first.since, second.since = 1.0, 2.0
    first.trusted = True
    _, _, writer3 = await place.enter()
    assert await is_closed(reader2)
    assert place.door.guard_of(first.inner) is first
    for writer in (writer1, writer2, writer3):
        writer.close()


async def test_a_connection_being_answered_stays(place: Place) -> None:
    (first, _, writer1), (second, _, writer2) = await place.enter(), await place.enter()
    first.began()
    second.began()
    reader, writer = await asyncio.open_connection(*place.address)
    assert await is_closed(reader)
    assert (place.door.displaced, place.door.refused) == (0, 1)
    first.ended()
    _, _, writer3 = await place.enter()
    assert place.door.guard_of(first.inner) is None
    assert place.door.guard_of(second.inner) is second
    for one in (writer, writer1, writer2, writer3):
        one.close()
