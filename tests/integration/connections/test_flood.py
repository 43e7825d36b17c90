"""Requests sent faster than the server can carry them out are left unread in the kernel."""

import contextlib
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.certificates import Authority, client_context
from tests.support.servers import RunningServer, running

Start = Callable[..., RunningServer]
CLIENTS = 60
SETS = 120  # by each client
VALUE = b"v" * 4000
# The maximum held when two thirds are done: a third of the clients may just have started, and the
# first read from each takes uvloop's read size. For the other clients, it is memcached's read size.
MOST = CLIENTS // 3 * 256_000 + CLIENTS * 16 * 1024
FLAGS = ("-m", "64", "-R", "2")  # a turn handles less than a read provides


def binary(key: bytes) -> bytes:
    head = struct.pack(">BBHBBHIIQII", 0x80, 0x11, len(key), 8, 0, 0, len(key) + 4008, 0, 0, 0, 0)
    return head + key + VALUE


def text(key: bytes) -> bytes:
    return b"set %b 0 0 %d noreply\r\n%b\r\n" % (key, len(VALUE), VALUE)


def meta(key: bytes) -> bytes:
    return b"ms %b %d q\r\n%b\r\n" % (key, len(VALUE), VALUE)


@contextlib.contextmanager
def flooded(server: RunningServer, request: Callable[[bytes], bytes]) -> Iterator[None]:
    """Let all clients send all their requests at once, without waiting for anything."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(CLIENTS) as threads:
        for number in range(CLIENTS):
            keys = (b"key-%d-%d" % (number, one) for one in range(SETS))
            wire = stack.enter_context(server.connect())
            threads.submit(wire.send, b"".join(map(request, keys)))
        yield


def most_held(server: RunningServer, request: Callable[[bytes], bytes]) -> int:
    """Return the maximum input that the server held once it had slowed the clients down."""
    most = 0
    with server.connect() as wire, flooded(server, request):
        while int((stats := wire.stats())["cmd_set"]) < CLIENTS * SETS:
            if int(stats["cmd_set"]) > CLIENTS * SETS * 2 / 3:
                most = max(most, int(stats["read_buf_bytes"]))
        assert int(stats["conn_yields"]) > 0
        assert int(stats["read_buf_bytes"]) == 0
        assert int(stats["curr_items"]) == CLIENTS * SETS
        assert int(stats["evictions"]) == 0
    return most


@pytest.mark.parametrize(
    ("kind", "request_of"),
    [("memlite", binary), ("memlite", text), ("memlite", meta), ("memlite-asyncio", text)],
)
def test_little_input_is_held(kind: str, request_of: Callable[[bytes], bytes]) -> None:
    with running(kind, *FLAGS) as server:
        assert most_held(server, request_of) <= MOST


def test_little_input_is_held_with_tls(tmp_path_factory: pytest.TempPathFactory) -> None:
    issued = Authority(tmp_path_factory.mktemp("certificates")).issue("server")
    with running("memlite", *FLAGS, *issued.flags, tls=client_context(issued.ca)) as server:
        assert most_held(server, text) <= MOST


def test_a_client_that_has_flooded_is_served_as_before(start: Start) -> None:
    with start(*FLAGS).connect() as wire:
        sets = b"".join(text(b"key-%d" % number) for number in range(200))
        wire.send(sets)
        for _ in range(20):  # one at a time again
            assert wire.ask(b"get key-199\r\n") == b"VALUE key-199 0 4000\r\n"
            assert wire.exactly(4007) == VALUE + b"\r\nEND\r\n"
        wire.send(sets + b"set large 0 0 900000\r\n" + b"x" * 900_000 + b"\r\nmn\r\n")
        assert wire.line() == b"STORED\r\n"
        assert wire.line() == b"MN\r\n"


def test_the_input_of_a_client_that_leaves_in_a_flood_is_freed(start: Start) -> None:
    server = start(*FLAGS)
    with server.connect() as watcher:
        with server.connect() as wire:
            wire.send(b"".join(text(b"key-%d" % number) for number in range(2000)))
        while int((stats := watcher.stats())["curr_connections"]) > 1:
            pass
        assert int(stats["read_buf_bytes"]) == 0
