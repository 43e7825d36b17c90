"""Arbitrary input at the HTTP port: it never fails, and clients of the cache are unaffected."""

import random
import re
import select
import socket
import struct
from collections.abc import Iterator

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

from tests.support.servers import RunningServer, running

PATHS = (
    b"/", b"/metrics", b"/healthz", b"/readyz", b"/api/now", b"/api/history", b"/dashboard.js",
    b"/debug/stacks", b"/debug/memory", b"/debug/profile?seconds=x", b"/favicon.ico", b"/none",
    b"*", b"http://evil.example/metrics", b"/%2e%2e/%00", b"//metrics",
    b"/metrics?" + b"a=b&" * 300,
)  # fmt: skip
METHODS = (b"GET", b"GET", b"GET", b"HEAD", b"POST", b"OPTIONS", b"CONNECT", b"PRI", b"G\x00T")
VERSIONS = (b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"")
HEADERS = (
    b"Host: localhost",
    b"Host: evil.example",
    b"Host: 127.0.0.1:80:80",
    b"Accept: application/openmetrics-text;q=0.5, */*",
    b"Accept-Encoding: gzip, identity;q=0",
    b"Authorization: Basic " + b"=" * 20,
    b"Authorization: Bearer \xff\xfe",
    b"Connection: keep-alive",
    b"Connection: close",
    b"Connection: Upgrade\r\nUpgrade: websocket",
    b"Content-Length: 5",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Content-Encoding: gzip",
    b"Expect: 100-continue",
    b"Range: bytes=0-1",
    b"Sec-Fetch-Site: cross-site",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: chunked, chunked",
    b" folded: header",
    b"no colon",
    b"X: " + b"y" * 3000,
    b": nameless",
)
CHUNKS = (
    b"0\r\n\r\n",
    b"5\r\nabcde\r\n0\r\n\r\n",
    b"fffffffff\r\n",
    b"-1\r\n",
    b"5;x=y\r\nab",
    b"zz\r\n",
)
LAST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
PATIENCE = 0.5
REPLY = re.compile(rb"HTTP/\d\.\d (\d{3}) ")  # aiohttp repeats the version it was sent


def request(chance: random.Random) -> bytes:
    """Return a request that is more or less valid."""
    if chance.random() < 0.4:
        lines = [b"GET " + chance.choice(PATHS) + b" HTTP/1.1", b"Host: localhost"]
    else:
        words = (chance.choice(METHODS), chance.choice(PATHS), chance.choice(VERSIONS))
        lines = [b" ".join(words)]
    lines += chance.choices(HEADERS, k=chance.randrange(6))
    text = b"\r\n".join(lines) + b"\r\n\r\n"
    if chance.random() < 0.3:
        text += b"".join(chance.choices(CHUNKS, k=chance.randrange(1, 4)))
    return text


def mutated(chance: random.Random, text: bytes) -> bytes:
    """Return a text with some bytes changed, doubled, left out or cut off."""
    changed = bytearray(text)
    for _ in range(chance.randrange(1, 8)):
        if not changed:
            break
        at = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                del changed[at : at + chance.randrange(1, 9)]
            case 2:
                changed[at:at] = changed[at : at + chance.randrange(1, 40)] * 2
            case _:
                del changed[at:]
    return bytes(changed)


def inputs(chance: random.Random) -> Iterator[bytes]:
    """Yield inputs, each for one connection."""
    while True:
        match chance.randrange(4):
            case 0:
                yield chance.randbytes(chance.randrange(1, 2000))
            case 1:
                yield request(chance)
            case 2:
                yield b"".join(request(chance) for _ in range(chance.randrange(2, 20)))
            case _:
                text = b"".join(request(chance) for _ in range(chance.randrange(1, 4)))
                yield mutated(chance, text)


def exchange(port: int, chance: random.Random, text: bytes) -> bytes:
    """Send a text in pieces and a last request; return all replies until the connection ends.

    aiohttp gives no replies once the client has ended its side, so that is done only if the server
    waits for more.
    """
    text += LAST
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        found = b""
        try:
            while text:
                size = len(text) if chance.random() < 0.7 else chance.randrange(1, 200)
                sock.sendall(text[:size])
                text = text[size:]
            if chance.random() < 0.2:  # reset at once, with replies unread
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return b""
            if not select.select([sock], [], [], PATIENCE)[0]:
                sock.shutdown(socket.SHUT_WR)
            while data := sock.recv(1 << 20):
                found += data
                if not select.select([sock], [], [], PATIENCE)[0]:
                    sock.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass
        return found


def fuzz(server: RunningServer, seed: int, count: int) -> None:
    chance = random.Random(seed)
    statuses: set[int] = set()
    with server.connect() as wire:
        before = server.resident_kib()
        for number, text in zip(range(count), inputs(chance), strict=False):
            reply = exchange(server.http_port, chance, text)
            said = (seed, number, text[:300])
            if reply:
                assert REPLY.match(reply), (said, reply[:100])
            found = {int(status) for status in REPLY.findall(reply)}
            assert not any(status >= 500 for status in found), (said, reply[:300])
            statuses |= found
            assert wire.ask(b"set key%d 0 0 1\r\nx\r\n" % (number % 10)) == b"STORED\r\n", said
        assert server.resident_kib() - before < 40_000
    assert statuses >= {200, 400, 405}
    assert b"alive" in exchange(server.http_port, random.Random(1), b"")
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    "kind", ["memlite", pytest.param("memlite-asyncio", marks=pytest.mark.slow)]
)
def test_arbitrary_input(kind: str) -> None:
    with running(kind, "--http", "0", "--http-debug") as server:
        fuzz(server, 24, 250)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_arbitrary_input_at_length(seed: int) -> None:
    with running("memlite", "--http", "0", "--http-debug") as server:
        fuzz(server, seed, 4000)
