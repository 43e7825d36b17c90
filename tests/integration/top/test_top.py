"""``memlite top`` with real servers: memlite, memcached, proxies, passwords and TLS."""

import contextlib
import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich", reason="rich is not installed")

from tests.support.certificates import Authority, client_context
from tests.support.forked import run_memlite
from tests.support.logins import LOGIN, STORED, USERS, write_users
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, needs_memcached, running
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

Start = Callable[..., RunningServer]
KINDS = ["memlite", pytest.param("memcached", marks=needs_memcached)]


def top(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr."""
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "80", **variables}
    done = run_memlite("top", "--interval", "0.1", *arguments, timeout=120, environment=environment)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def figures(*arguments: str, **variables: str) -> Any:
    code, out, err = top("--json", *arguments, **variables)
    assert (code, err) == (0, "")
    return json.loads(out)


def at(server: RunningServer) -> str:
    return f"127.0.0.1:{server.port}"


@pytest.mark.parametrize("kind", KINDS)
def test_one_table(start: Start, kind: str) -> None:
    server = start(kind=kind)
    with server.connect() as wire:
        assert wire.ask(b"set a 0 0 5\r\nvalue\r\n") == b"STORED\r\n"
    code, out, err = top(at(server))  # not a terminal
    assert (code, err) == (0, "")
    _, titles, row = out.splitlines()[:3]
    assert titles.split() == [
        "server",
        "OPS/S",
        "get/s",
        "set/s",
        "hit",
        "p99",
        "mem",
        "used",
        "items",
        "evi/s",
        "conn",
    ]
    name, *cells = row.split()
    assert name == at(server)
    assert cells[7] == "1"
    assert len(row) == 80


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_with_a_server_that_is_down(start: Start, kind: str) -> None:
    one, other = start(kind=kind), start()
    with one.connect() as wire:
        assert wire.ask(b"set a 0 0 5\r\nvalue\r\n") == b"STORED\r\n"
    other.stop()
    found = figures(at(one), at(other))
    up, down = found["servers"]
    assert (up["up"], up["trouble"], up["items"]) == (True, None, 1)
    assert up["memory_limit_bytes"] == 64 * 1024 * 1024
    assert up["operations_per_second"] == 0
    assert (down["up"], down["trouble"], down["items"]) == (False, "Connection refused", None)
    assert found["total"]["items"] == 1
    assert top("--once", at(other))[0] == 1


def test_the_nodes_of_a_proxy(start: Start) -> None:
    nodes = [start(), start()]
    with proxy(nodes) as front:
        assert wait_until(lambda: all(node_stat(front, node, "state") == "up" for node in nodes))
        with front.connect() as wire:
            for number in range(20):
                assert wire.ask(b"set k%d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n"
        found = figures(at(front), at(nodes[0]))
        assert sorted(one["server"] for one in found["servers"]) == sorted(map(at, nodes))
        assert found["total"]["items"] == 20
        (own,) = figures("--no-discovery", at(front))["servers"]
        assert (own["server"], own["up"], own["items"]) == (at(front), True, None)


def test_passwords(tmp_path: Path) -> None:
    users = write_users(tmp_path, USERS)
    with running("memlite", "-Y", str(users)) as server:
        with server.connect() as wire:
            assert wire.ask(LOGIN) == STORED
        code, out, _ = top("--once", at(server))
        assert code == 1
        assert "down: CLIENT_ERROR unauthenticated" in out
        (found,) = figures("--user", "foo", at(server), MEMLITE_TOP_PASSWORD="bar")["servers"]
        assert found["up"]
        code, out, _ = top("--user", "foo", at(server), MEMLITE_TOP_PASSWORD="no")
        assert (code, "down: " in out) == (1, True)


def test_tls(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("server")
    context = client_context(issued.ca)
    with running("memlite", "-Z", *issued.flags, tls=context) as server:
        (found,) = figures("--tls", "--tls-ca-cert", str(issued.ca), at(server))["servers"]
        assert found["up"]
        assert figures("--tls", "--tls-skip-verify", at(server))["servers"][0]["up"]
        code, out, _ = top("--tls", at(server))
        assert (code, "down: " in out) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a b"], "top: not HOST:PORT"),
        (["--interval", "0"], "top: argument -i/--interval: must be from 0.1 to 3600 seconds"),
        (["--tls-cert", "x"], "top: --tls-cert requires --tls"),
        (["--password-file", "x"], "top: --password-file requires --user"),
        (["--nonsense"], "top: unrecognized arguments: --nonsense"),
    ],
)
def test_wrong_invocations(arguments: list[str], says: str) -> None:
    code, out, err = top(*arguments)
    assert (code, out) == (64, "")
    assert err.startswith(f"memlite: {says}")


# On a terminal


@pytest.fixture
def open_top() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*arguments: str) -> Terminal:
        opened.append(Terminal("top", "--interval", "0.2", *arguments))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.mark.parametrize("kind", KINDS)
def test_top_follows_a_server_through_a_restart(
    start: Start, open_top: Callable[..., Terminal], kind: str
) -> None:
    server = start(kind=kind)
    one = open_top(at(server))
    one.see(at(server), 60)
    with server.connect() as wire:
        for number in range(7):
            assert wire.ask(b"set k%d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n"
    one.see(" 7 ", 60)  # items
    server.process.kill()
    server.process.wait()
    one.see("down: ", 60)
    with running(kind, "-p", str(server.port)):
        one.see("0%", 60)  # the share of memory used
        one.type("q")
        assert one.process.wait(60) == 0


def test_keys(start: Start, open_top: Callable[..., Terminal]) -> None:
    one = open_top(at(start()))
    one.see("OPS/S", 60)
    one.type("g")
    one.see("GET/S", 60)
    one.type("\x1b[C")
    one.see("SET/S", 60)
    one.type("n")
    one.see("SERVER", 60)
    one.type("p")
    one.see("paused", 60)
    one.type("p")
    one.see("every 0.2 s", 60)
    one.type("+")
    one.see("every 0.5 s", 60)
    one.resize(120, 30)
    one.see("every 0.5 s" + 81 * " ", 60)  # the time of day is further right
    one.type("q")
    assert one.process.wait(60) == 0
    assert one.settings() == one.before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, None])
def test_the_terminal_is_restored(
    start: Start, open_top: Callable[..., Terminal], number: signal.Signals | None
) -> None:
    one = open_top(at(start()))
    one.see("OPS/S", 60)
    assert one.settings() != one.before
    if number is None:
        one.type("\x03")
    else:
        one.process.send_signal(number)
    assert one.process.wait(60) == 0
    assert one.settings() == one.before
    shown = one.raw("\x1b[?1049l", 60)  # the screen that was there before
    assert "\x1b[?25h" in shown  # and the cursor
    assert "Traceback" not in shown


def test_a_server_that_hangs_holds_up_no_other(
    start: Start, open_top: Callable[..., Terminal]
) -> None:
    one, hung = start(), start()
    hung.pause()
    try:
        screen = open_top("--timeout", "1", at(one), at(hung))
        screen.see("down: timed out", 60)
        with one.connect() as wire:
            assert wire.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        screen.see("1 of 2 up", 60)
        hung.process.send_signal(signal.SIGCONT)
        screen.see("2 of 2 up", 60)
    finally:
        hung.process.send_signal(signal.SIGCONT)


class Hostile:
    """A server that answers a given request with a scripted, possibly endless reply."""

    def __init__(self, asked: bytes, begin: bytes, part: bytes) -> None:
        self.sent = 0
        self._asked, self._begin, self._part = asked, begin, part
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.at = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # by `close`
            while True:
                with self._listener.accept()[0] as sock, contextlib.suppress(OSError):
                    self._answer(sock)

    def _answer(self, sock: socket.socket) -> None:
        while data := sock.recv(4096):
            if self._asked not in data:
                sock.sendall(b"ERROR\r\nVERSION 1\r\n" if b"version" in data else b"ERROR\r\n")
                continue
            sock.sendall(self._begin)
            while self._part:
                self.sent += sock.send(self._part * (65536 // len(self._part)))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def test_a_server_that_lists_too_many_nodes() -> None:
    listed = b" ".join(b"h|1|%d" % number for number in range(1, 60_000))
    body = b"1\n%b\n" % listed
    reply = b"CONFIG cluster 0 %d\r\n%b\r\nEND\r\nVERSION 1\r\n" % (len(body), body)
    server = Hostile(b"config get cluster", reply, b"")
    try:
        code, out, err = top("--once", "--timeout", "60", server.at)
    finally:
        server.close()
    assert (code, err) == (1, "")
    assert "down: ERROR" in out  # it refuses stats as well


@pytest.mark.parametrize(
    ("asked", "begin", "part", "says"),
    [
        (b"stats", b"", b"STAT a 1\r\n", "a reply exceeds the limit of 1,048,576 bytes"),
        (b"stats", b"STAT a ", b"x", "not memcached's protocol"),
        (b"config", b"", b"STAT a 1\r\n", "a reply exceeds the limit of 1,048,576 bytes"),
        (b"get", b"VALUE a 0 900000000\r\n", b"x", "a value of 900,000,000 bytes exceeds"),
    ],
)
def test_a_server_whose_reply_has_no_end(
    asked: bytes, begin: bytes, part: bytes, says: str
) -> None:
    server = Hostile(asked, begin, part)
    try:
        code, out, err = top("--once", "--timeout", "60", server.at, COLUMNS="200")
    finally:
        server.close()
    assert (code, err) == (1, "")
    assert f"down: {says}" in out
    assert server.sent < 32 * 1024 * 1024  # twice the limit, plus the socket buffers
