"""The lite dialect over sockets: the acceptance cases on every backend, and hostile input."""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority, client_context
from tests.support.forked import run_memlite
from tests.support.servers import RunningServer, Wire, running

Start = Callable[..., RunningServer]

ACCEPTANCE = [
    (b"set greeting 5\r\nhello\r\n", b"STORED\r\n"),
    (b"get greeting\r\n", b"VALUE greeting 5\r\nhello\r\nEND\r\n"),
    (b"set word 4\r\nletters\r\n", b"STORED\r\n"),
    (b"get word\r\n", b"VALUE word 4\r\nlett\r\nEND\r\n"),
    (b"set word letters\r\n", b"NOT_STORED\r\n"),
]
LARGE = b"\r\n" * 100_000


@contextlib.contextmanager
def bucket() -> Iterator[str]:
    """Yield the URL of a bucket for the test."""
    pytest.importorskip("aiohttp", reason="needs memlite-cache[gcs]")
    pytest.importorskip("google.cloud.storage", reason="needs memlite-cache[gcs]")
    from memlite.testing.gcs_emulator import emulator_thread

    with emulator_thread(["lite"]) as emulator:
        yield f"gs://lite/p?endpoint={emulator.url}"


BACKENDS = ["memory", "file", "bucket", "near"]


@pytest.fixture(
    scope="module",
    params=[(backend, loop) for backend in BACKENDS for loop in ("uvloop", "asyncio")],
    ids=" ".join,
)
def lite(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with the lite dialect, on each backend and event loop."""
    backend, loop = request.param
    arguments = ["--dialect", "lite", "--loop", loop]
    with contextlib.ExitStack() as stack:
        if backend == "file":
            arguments += ["--backend", f"file://{tmp_path_factory.mktemp('lite')}/cache.json"]
        elif backend == "bucket":
            arguments += ["--backend", stack.enter_context(bucket())]
        elif backend == "near":
            arguments += ["--near-cache", "8m"]
        yield stack.enter_context(running("memlite", *arguments))


def test_the_acceptance_cases(lite: RunningServer) -> None:
    with lite.connect() as wire:
        for request, reply in ACCEPTANCE:
            wire.send(request)
            assert wire.exactly(len(reply)) == reply
    # The cases are pipelined, and a second connection must see the same items.
    assert lite.ask(b"".join(request for request, _ in ACCEPTANCE)) == b"".join(
        reply for _, reply in ACCEPTANCE
    )


CONVERSATIONS = [
    (b"get nothing\r\n", b"END\r\n"),
    (b"get\r\nget a b\r\nget " + b"k" * 251 + b"\r\n", b"INVALID\r\n" * 3),
    (b"set\r\nset a\r\nset a -1\r\nset " + b"k" * 251 + b" 1\r\n", b"NOT_STORED\r\n" * 4),
    (b"set a 0 0 1\r\nx\r\n", b"NOT_STORED\r\nERROR\r\n"),
    (b"set lines 4\n\r\n\r\n\nget lines\n", b"STORED\r\nVALUE lines 4\r\n\r\n\r\n\r\nEND\r\n"),
    (b"set none 0\r\nvalue\r\nget none\r\n", b"STORED\r\nVALUE none 0\r\n\r\nEND\r\n"),
    (b"version\r\nstats\r\nflush_all\r\ndelete a\r\nwatch\r\n\r\n", b"ERROR\r\n" * 6),
    (b"get nothing\r\nquit\r\nget nothing\r\n", b"END\r\n"),
    (
        b"set large 200000\r\n%b and more\r\nget large\r\n" % LARGE,
        b"STORED\r\nVALUE large 200000\r\n%b\r\nEND\r\n" % LARGE,
    ),
    (b"set turn 1\r\n1\r\n" * 100, b"STORED\r\n" * 100),
    (b"set half 5\r\nhel", b""),
    (b"set half 5\r\nhello", b""),
    (b"set half 5\r\nhello\r\nget half", b"STORED\r\n"),
    (
        b"set big 2000000\r\n" + b"\n" * 2_000_000 + b"rest\r\nget big\r\n",
        b"SERVER_ERROR object too large for cache\r\nEND\r\n",
    ),
]


@pytest.mark.parametrize(("request_", "reply"), CONVERSATIONS, ids=range(len(CONVERSATIONS)))
def test_conversations(lite: RunningServer, request_: bytes, reply: bytes) -> None:
    assert lite.ask(request_) == reply


def test_a_value_that_arrives_in_pieces(lite: RunningServer) -> None:
    with lite.connect() as wire:
        wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"set slow 7\r\nsl\r\now!!!\r\nget slow\r\n":
            wire.send(bytes([byte]))
        expected = b"STORED\r\nVALUE slow 7\r\nsl\r\now!\r\nEND\r\n"
        assert wire.exactly(len(expected)) == expected


@pytest.mark.parametrize(
    "attack",
    [
        b"\x80\x0a" + bytes(22),
        b"get a\r\n\x80" + bytes(23),
        b"POST / HTTP/1.1\r\nHost: cache\r\n\r\nset a 5\r\nhello\r\n",
        b"x" * 10_000,
        b"get " + b"x" * 10_000 + b"\r\n",
    ],
    ids=["binary", "binary later", "http", "endless", "long"],
)
def test_hostile_input_closes_the_connection(lite: RunningServer, attack: bytes) -> None:
    with lite.connect() as wire:
        with contextlib.suppress(ConnectionError):
            wire.send(attack)
        assert wire.rest() in (b"", b"END\r\n")
    assert lite.ask(b"get nothing\r\n") == b"END\r\n"


def send_until_cut(wire: Wire, chunk: bytes, times: int) -> None:
    with contextlib.suppress(ConnectionError):
        for _ in range(times):
            wire.send(chunk)


@pytest.mark.parametrize(
    "begin", [b"set a 1\r\nx", b"set a 2000000000\r\n"], ids=["rest of a line", "refused value"]
)
def test_discarded_input_takes_no_memory(start: Start, begin: bytes) -> None:
    server = start("--dialect", "lite")
    with server.connect() as wire:
        wire.send(begin)
        before = server.resident_kib()
        send_until_cut(wire, b"y" * 1_000_000, 100)
        assert server.resident_kib() - before < 10_000
        assert server.ask(b"get nothing\r\n") == b"END\r\n"


def test_a_client_that_does_not_read_is_not_served_further(start: Start) -> None:
    server = start("--dialect", "lite")
    value = b"v" * 500_000
    assert server.ask(b"set a 500000\r\n" + value + b"\r\n") == b"STORED\r\n"
    with server.connect() as wire:
        wire.sock.settimeout(60)
        before = server.resident_kib()
        asking = threading.Thread(target=send_until_cut, args=(wire, b"get a\r\n" * 200, 1))
        asking.start()
        for _ in range(20):
            assert server.ask(b"get nothing\r\n") == b"END\r\n"
        assert server.resident_kib() - before < 20_000
        one = b"VALUE a 500000\r\n" + value + b"\r\nEND\r\n"
        assert all(wire.exactly(len(one)) == one for _ in range(200))
        asking.join()


def test_many_clients_use_one_key(lite: RunningServer) -> None:
    def work(number: int) -> None:
        with lite.connect() as wire:
            for _ in range(10):
                wire.send(b"set shared 3\r\n%03d\r\nget shared\r\n" % number)
                assert wire.line() == b"STORED\r\n"
                assert wire.line() == b"VALUE shared 3\r\n"
                seen.append(wire.line())
                assert wire.line() == b"END\r\n"

    seen: list[bytes] = []
    clients = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert len(seen) == 80
    assert set(seen) <= {b"%03d\r\n" % number for number in range(8)}


def test_items_are_shared_with_memcacheds_dialect(tmp_path: Path) -> None:
    """A file is written in memcached's dialect, which has flags, and read in lite."""
    backend = ["--backend", f"file://{tmp_path}/cache.json"]
    with running("memlite", *backend) as server, server.connect() as wire:
        assert wire.ask(b"set a 7 0 5\r\nhello\r\n") == b"STORED\r\n"
    with running("memlite", "--dialect", "lite", *backend) as server:
        assert server.ask(b"get a\r\nset b 1\r\nx\r\n") == (
            b"VALUE a 5\r\nhello\r\nEND\r\nSTORED\r\n"
        )
    with running("memlite", *backend) as server, server.connect() as wire:
        wire.send(b"get a b\r\n")
        assert wire.until(b"END\r\n") == (b"VALUE a 7 5\r\nhello\r\nVALUE b 0 1\r\nx\r\nEND\r\n")


@pytest.mark.parametrize("arguments", [["-vv"], ["-C"], ["-D", ":"], ["-R", "1"]], ids=" ".join)
def test_the_acceptance_cases_with_other_options(start: Start, arguments: list[str]) -> None:
    server = start("--dialect", "lite", *arguments)
    for _ in range(100):  # enough for some to be sampled
        with server.connect() as wire:
            for request, reply in ACCEPTANCE:
                wire.send(request)
                assert wire.exactly(len(reply)) == reply
    if "-vv" in arguments:
        log = server.log.read_text()
        assert "set greeting 0 0 5" in log
        assert "sending key word" in log
        assert ">" in log
        assert "lett\n" not in log


def test_over_tls_and_a_unix_socket(start: Start, tmp_path: Path) -> None:
    request = b"".join(request for request, _ in ACCEPTANCE) + b"quit\r\n"
    expected = b"".join(reply for _, reply in ACCEPTANCE)
    assert start("--dialect", "lite", unix=True).ask(request) == expected
    authority = Authority(tmp_path)
    served = authority.issue("server")
    server = start("--dialect", "lite", *served.flags, tls=client_context(served.ca))
    with server.connect() as wire:
        wire.send(request)
        assert wire.exactly(len(expected)) == expected


def test_memcacheds_dialect_is_unchanged(memlite: RunningServer) -> None:
    assert memlite.ask(b"set greeting 5\r\nget greeting\r\n") == (
        b"CLIENT_ERROR bad command line format\r\nEND\r\n"
    )


def shell(
    server: RunningServer, *words: str, lines: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    address = server.path or f"127.0.0.1:{server.port}"
    return run_memlite("shell", "--dialect", "lite", address, *words, lines=lines)


def test_the_shell_speaks_the_lite_dialect(start: Start) -> None:
    server = start("--dialect", "lite", unix=True)
    for words, lines, output, code in (
        (["set", "greeting", "hello"], b"", b"STORED\n", 0),
        (["get", "greeting"], b"", b"greeting: 5 bytes\nhello\n", 0),
        (["--raw", "get", "greeting"], b"", b"hello", 0),
        (["-x", "set", "lines"], b"a\r\nb", b"STORED\n", 0),
        (["--raw", "get", "lines"], b"", b"a\r\nb", 0),
        (["get", "nothing"], b"", b"(not found)\n", 0),
        (["set word letters"], b"", b"NOT_STORED\n", 0),
        (["get", "a", "b"], b"", b"INVALID\n", 1),
        (["stats"], b"", b"ERROR\n", 1),
        ([], b'set word 4\r\nlett\r\nget word\nset w "x"\nset word letters\nget\n',
         b"STORED\nword: 4 bytes\nlett\nSTORED\nNOT_STORED\nINVALID\n", 1),
    ):  # fmt: skip
        run = shell(server, *words, lines=lines)
        assert (run.stdout, run.stderr, run.returncode) == (output, b"", code), words


def test_the_shell_does_not_send_values_longer_than_announced(start: Start) -> None:
    server = start("--dialect", "lite")
    run = shell(server, lines=b"set word 4\r\nletters\r\nget word\r\n")
    assert run.stdout == b"(not found)\n"
    assert b"longer than 4 bytes" in run.stderr
    assert run.returncode == 1
