"""Metrics and health over HTTP, from real servers."""

import asyncio
import gzip
import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

import memlite
from memlite.backends.memory import MemoryBackend
from memlite.core.errors import StartError, StorageError
from memlite.server.http.door import MAX_CONNECTIONS
from tests.support.certificates import Authority, client_context
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

PROMTOOL = shutil.which("promtool")
TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module", params=["memlite", "memlite-asyncio", "memlite-file"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running(request.param, "--http", "0", "--http-metric-names", "both") as server:
        yield server


@pytest.fixture(scope="module", params=["server", pytest.param("proxy", marks=pytest.mark.slow)])
def plain(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A server or a proxy, with the same HTTP side."""
    options = ("--http", "0", "--http-hosts", "cache.example")
    if request.param == "server":
        with running("memlite", *options) as server:
            yield server
        return
    with running("memlite") as node, proxy([node], *options) as front:
        assert wait_until(lambda: ask(front.http_port, "/readyz")[0] == 200)
        yield front


def ask(
    port: int,
    path: str,
    headers: dict[str, str] | None = None,
    *,
    method: str = "GET",
    context: ssl.SSLContext | None = None,
) -> tuple[int, dict[str, str], bytes]:
    connection = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        if context is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    )
    try:
        connection.request(method, path, headers=headers or {})
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()
    finally:
        connection.close()


def metrics(port: int) -> dict[str, float]:
    status, _, body = ask(port, "/metrics")
    assert status == 200
    lines = body.decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_metrics_agree_with_stats(server: RunningServer) -> None:
    with server.connect() as wire:
        for number in range(20):
            wire.send(b"set key%d 0 0 5\r\nvalue\r\n" % number)
            assert wire.line() == b"STORED\r\n"
        wire.send(b"get key1\r\n")
        wire.until(b"END\r\n")
        wire.send(b"get missing\r\n")
        wire.until(b"END\r\n")
        stats, latencies = wire.stats(), wire.stats("latency")
        found = metrics(server.http_port)
    for name, field in {
        'memlite_commands_total{command="get",result="hit"}': "get_hits",
        'memlite_commands_total{command="get",result="miss"}': "get_misses",
        'memlite_commands_total{command="set",result="done"}': "cmd_set",
        "memlite_items": "curr_items",
        "memlite_items_bytes": "bytes",
        "memlite_items_limit_bytes": "limit_maxbytes",
        "memlite_open_connections": "curr_connections",
        "memlite_connections_limit": "max_connections",
        'memcached_commands_total{command="get",status="hit"}': "get_hits",
        "memcached_current_items": "curr_items",
        "memcached_items_total": "total_items",
    }.items():
        assert found[name] == float(stats[field]), name
    for kind in ("get", "store"):
        name = f'memlite_command_duration_seconds_count{{class="{kind}"}}'
        assert found[name] == float(latencies[f"{kind}:samples"])
    assert found["memlite_ready"] == 1
    if server.kind == "memlite-file":
        assert found["memlite_backend_up"] == 1
        assert found["memlite_journal_fsync_duration_seconds_count"] >= 1
        assert found["memlite_journal_bytes"] > 0
    else:
        assert not [name for name in found if name.startswith("memlite_journal")]


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool (apt install prometheus)")
def test_promtool_reads_the_metrics(plain: RunningServer) -> None:
    assert PROMTOOL is not None
    _, _, body = ask(plain.http_port, "/metrics")
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=body, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_formats_are_negotiated(plain: RunningServer) -> None:
    _, headers, body = ask(plain.http_port, "/metrics")
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert not body.endswith(b"# EOF\n")
    _, headers, body = ask(
        plain.http_port,
        "/metrics",
        {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"},
    )
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body).endswith(b"# EOF\n")


def test_health(plain: RunningServer) -> None:
    assert ask(plain.http_port, "/healthz")[0] == 200
    status, _, body = ask(plain.http_port, "/readyz")
    assert (status, json.loads(body)) == (200, {"ready": True, "reasons": []})
    assert ask(plain.http_port, "/nothing")[0] == 404


@pytest.mark.parametrize("path", ["/metrics", "/readyz", "/nothing"])
def test_headers_of_every_reply(plain: RunningServer, path: str) -> None:
    _, headers, _ = ask(plain.http_port, path, {"Origin": "https://evil.example"})
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"
    assert not [name for name in headers if name.lower().startswith("access-control")]


def fetched(site: str, mode: str) -> dict[str, str]:
    return {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/metrics", {"Host": "evil.example"}, 421),
        ("/metrics", {"Host": "evil.example:80"}, 421),
        ("/metrics", {"Host": "cache.example"}, 200),
        ("/metrics", {"Host": "localhost"}, 200),
        ("/metrics", fetched("cross-site", "no-cors"), 403),
        ("/metrics", fetched("cross-site", "navigate"), 403),
        ("/metrics", fetched("same-site", "no-cors"), 403),
        ("/metrics", fetched("same-origin", "cors"), 200),
        ("/metrics", fetched("none", "navigate"), 200),
        ("/api/events", fetched("cross-site", "navigate"), 403),
        ("/", fetched("cross-site", "navigate"), 200),
        ("/", fetched("same-site", "navigate"), 200),
        ("/", fetched("cross-site", "no-cors"), 403),
    ],
)
def test_requests_from_other_sites(
    plain: RunningServer, path: str, headers: dict[str, str], status: int
) -> None:
    assert ask(plain.http_port, path, headers)[0] == status


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
def test_a_request_without_host(plain: RunningServer, path: str) -> None:
    with socket.create_connection(("127.0.0.1", plain.http_port), 60) as sock:
        sock.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert sock.recv(65536).split(b" ")[1] == b"200"


def test_the_head_of_the_stream_ends(plain: RunningServer) -> None:
    status, headers, body = ask(plain.http_port, "/api/events", method="HEAD")
    assert (status, headers["Content-Type"], body) == (200, "text/event-stream", b"")
    with socket.create_connection(("127.0.0.1", plain.http_port), 60) as sock:
        for path in (b"/api/events", b"/healthz"):  # the second is answered after the first
            sock.sendall(b"HEAD %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 2:
            data = sock.recv(65536)
            assert data
            received += data
        assert b"event:" not in received


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(plain: RunningServer, method: str) -> None:
    assert ask(plain.http_port, "/metrics", method=method)[0] == 405


def test_a_token_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("127.0.0.1")
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    context = client_context(authority.path)
    arguments = ["--http", "0", "--http-token-file", str(file), *issued.flags]
    with running("memlite", *arguments, tls=context) as server:
        port = server.http_port

        def scrape(token: str | None, path: str = "/metrics", **headers: str) -> int:
            given = {} if token is None else {"Authorization": f"Bearer {token}"}
            return ask(port, path, {**given, **headers}, context=context)[0]

        assert scrape(None) == scrape("wrong") == 401
        assert scrape(TOKEN) == 200
        # A client that knows the token is not a page of another site.
        assert scrape(TOKEN, Host="monitor.example") == 200
        assert scrape(None, "/healthz") == scrape(None, "/readyz") == 200
        file.write_text("another-token-of-some-length")
        server.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: scrape("another-token-of-some-length") == 200)
        assert scrape(TOKEN) == 401
        # Unfinished handshakes do not lock out other clients.
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_CONNECTIONS)]
        assert scrape("another-token-of-some-length") == 200
        log = server.log.read_text()
        assert "Traceback" not in log
        assert log.count("readable by every user") == 2  # at the start and on SIGHUP
        for sock in silent:
            sock.close()


def test_many_connections_do_not_affect_other_clients(plain: RunningServer) -> None:
    flood: list[socket.socket] = []
    try:
        for _ in range(200):
            flood.append(socket.create_connection(("127.0.0.1", plain.http_port), 60))
            flood[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        # Connections beyond the limit are closed before any timeout, and lock out no client.
        assert wait_until(lambda: sum(map(is_closed, flood)) >= 200 - MAX_CONNECTIONS)
        assert ask(plain.http_port, "/healthz")[0] == 200
        name = 'memlite_http_closed_total{reason="displaced"}'
        # A document is cached for a moment.
        assert wait_until(lambda: metrics(plain.http_port)[name] >= 200 - MAX_CONNECTIONS)
        with plain.connect() as wire:
            assert wire.ask(b"version\r\n").startswith(b"VERSION")
        files = len(list(Path(f"/proc/{plain.process.pid}/fd").iterdir()))
        assert files < MAX_CONNECTIONS + 50
    finally:
        for sock in flood:
            sock.close()
    assert wait_until(lambda: succeeds(plain.http_port))


@pytest.mark.slow
def test_clients_slow_to_send_or_to_read_are_disconnected(plain: RunningServer) -> None:
    before = plain.resident_kib()
    with (
        socket.create_connection(("127.0.0.1", plain.http_port), 60) as silent,
        socket.create_connection(("127.0.0.1", plain.http_port), 60) as halfway,
        socket.create_connection(("127.0.0.1", plain.http_port), 60) as deaf,
    ):
        halfway.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        deaf.setblocking(False)
        try:  # the replies to so many requests far exceed the socket buffers of both sides
            for _ in range(3000):
                deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        except BlockingIOError:
            pass
        assert wait_until(lambda: is_closed(silent) and is_closed(halfway))

        def is_reset() -> bool:
            try:
                deaf.send(b" ")
            except BlockingIOError:
                return False
            except OSError:
                return True
            return False

        assert wait_until(is_reset)
        with plain.connect() as wire:
            assert wire.ask(b"version\r\n").startswith(b"VERSION")
    assert plain.resident_kib() < before + 64 * 1024


def is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def succeeds(port: int) -> bool:
    try:
        return ask(port, "/healthz")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


GOOD = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\nConnection: close\r\n\r\n"


def malformed() -> Iterator[bytes]:
    yield b"\x16\x03\x01\x02\x00\x01\x00"
    yield b"GET " + b"/" * 100_000
    yield b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(500)) + b"\r\n"
    yield b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n"
    yield b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000
    yield b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"
    yield b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nzzz"
    yield b"GET http://evil.example/metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    yield b"get a\r\nset b 0 0 1\r\nx\r\n"
    random_ = random.Random(24)
    for _ in range(60):
        text = bytearray(GOOD)
        for _ in range(random_.randint(1, 6)):
            text[random_.randrange(len(text))] = random_.randrange(256)
        yield bytes(text)


@pytest.mark.parametrize(
    "text",
    [
        b"EVIL\r\n\r\n",
        b"GET / HTTP/1.1\r\nEVIL\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nEVIL: " + b"y" * 5000 + b"\r\n\r\n",
    ],
)
def test_replies_to_malformed_requests(plain: RunningServer, text: bytes) -> None:
    with socket.create_connection(("127.0.0.1", plain.http_port), 60) as sock:
        sock.sendall(text)
        reply = http.client.HTTPResponse(sock)
        reply.begin()
        assert (reply.status, reply.read()) == (400, b"malformed request\n")
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        assert reply.headers["Server"] == "memlite"
        assert sock.recv(1) == b""


def test_malformed_requests_do_no_harm(plain: RunningServer) -> None:
    logged = plain.log.read_bytes()
    for text in malformed():
        with socket.create_connection(("127.0.0.1", plain.http_port), 60) as sock:
            try:
                sock.sendall(text)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
            except ConnectionError:
                pass
    assert metrics(plain.http_port)["memlite_ready"] == 1
    assert plain.log.read_bytes() == logged  # malformed requests cannot fill the log


def test_a_server_that_drains_says_so(tmp_path: Path) -> None:
    with running("memlite", "--http", "0") as server:
        with server.connect() as wire:
            wire.send(b"set key 0 0 5\r\nval")
            server.process.send_signal(signal.SIGUSR1)

            def draining() -> bool:
                status, _, body = ask(server.http_port, "/readyz")
                return (status, json.loads(body)["reasons"]) == (503, ["draining"])

            assert wait_until(draining)
            assert ask(server.http_port, "/healthz")[0] == 200
            assert metrics(server.http_port)["memlite_ready"] == 0
            wire.send(b"ue\r\n")
            assert wire.line() == b"STORED\r\n"
        assert server.process.wait(60) == 0


class Failing(MemoryBackend):
    """A store behind an open circuit breaker."""

    state = "available"

    async def get(self, key):  # type: ignore[no-untyped-def]
        if self.state != "available":
            raise StorageError("unavailable")
        return await super().get(key)

    def stats(self):  # type: ignore[no-untyped-def]
        return {"state": self.state}


async def test_a_store_that_is_unavailable() -> None:
    made: list[Failing] = []

    def make(context):  # type: ignore[no-untyped-def]
        made.append(Failing(context))
        return made[-1]

    async with memlite.serve(backend=make, http="0") as server:

        async def ready() -> tuple[int, list[str]]:
            status, _, body = await asyncio.to_thread(ask, server.http_port, "/readyz")
            return status, json.loads(body)["reasons"]

        assert await ready() == (200, [])
        made[-1].state = "unavailable"
        assert await ready() == (503, ["the store is unavailable"])
        found = await asyncio.to_thread(metrics, server.http_port)
        assert found["memlite_backend_up"] == found["memlite_ready"] == 0
        made[-1].state = "available"
        assert await ready() == (200, [])


class Silent(Failing):
    """A store that does not answer for now."""

    state = "unavailable"

    def __init__(self, context):  # type: ignore[no-untyped-def]
        super().__init__(context)
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()

    async def get(self, key):  # type: ignore[no-untyped-def]
        self.asked.set()
        await self.answers.wait()
        return await super().get(key)


async def test_replies_under_way_are_sent_before_a_stop_and_streams_do_not_delay_it() -> None:
    made: list[Silent] = []

    def make(context):  # type: ignore[no-untyped-def]
        made.append(Silent(context))
        return made[-1]

    reader = writer = None
    async with memlite.serve(backend=make, http="0") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        writer.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        reply = asyncio.create_task(asyncio.to_thread(ask, server.http_port, "/readyz"))
        await made[-1].asked.wait()
        asyncio.get_running_loop().call_later(0.1, made[-1].answers.set)
    status, _, body = await reply
    assert (status, json.loads(body)["reasons"][0]) == (503, "draining")
    writer.close()


class Opening(MemoryBackend):
    """A store that takes its time to open."""

    may_open: asyncio.Event
    fails = False

    async def open(self):  # type: ignore[no-untyped-def]
        await self.may_open.wait()
        if self.fails:
            raise StartError("not now")

    def stats(self):  # type: ignore[no-untyped-def]
        assert self.may_open.is_set(), "asked before it was open"
        return {}


@pytest.mark.parametrize("fails", [False, True])
async def test_probes_are_answered_while_the_store_opens(fails: bool) -> None:
    made: list[Opening] = []

    def make(context):  # type: ignore[no-untyped-def]
        made.append(Opening(context))
        made[-1].may_open, made[-1].fails = asyncio.Event(), fails
        return made[-1]

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    entering = memlite.serve(backend=make, http=f"127.0.0.1:{port}")
    task = asyncio.ensure_future(entering.__aenter__())

    def answered() -> bool:
        return wait_until(lambda: succeeds(port))

    async def status(path: str) -> tuple[int, bytes]:
        found, _, body = await asyncio.to_thread(ask, port, path)
        return found, body

    assert await asyncio.to_thread(answered)
    assert await status("/readyz") == (503, b'{"ready":false,"reasons":["starting"]}')
    assert await status("/metrics") == (503, b"starting\n")
    made[-1].may_open.set()
    if fails:
        with pytest.raises(StartError, match="not now"):
            await task
        assert not await asyncio.to_thread(succeeds, port)
        return
    await task
    assert await status("/readyz") == (200, b'{"ready":true,"reasons":[]}')
    assert (await status("/metrics"))[0] == 200
    await entering.__aexit__(None, None, None)


# Without --http

MODULES = """
import sys, threading
from memlite.cli.main import main
code = main(sys.argv[1:])
names = {name.partition(".")[0] for name in sys.modules}
http = [name for name in sys.modules if name.startswith("memlite.server.http.")]
print("imported:", *sorted(names & {"aiohttp", "prometheus_client"}), *http)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("arguments", "imported"), [([], False), (["--http", "127.0.0.1:0"], True)]
)
def test_what_a_server_process_imports(
    tmp_path: Path, arguments: list[str], imported: bool
) -> None:
    ports = tmp_path / "ports"
    process = subprocess.Popen(
        [sys.executable, "-c", MODULES, "-p", "0", "-l", "127.0.0.1", *arguments],
        env={**os.environ, "MEMCACHED_PORT_FILENAME": str(ports)},
        stdout=subprocess.PIPE,
    )
    try:
        assert wait_until(ports.exists)
        port = int(ports.read_text().split()[2])
        with socket.create_connection(("127.0.0.1", port), 60) as sock:
            sock.sendall(b"get key\r\nstats\r\nquit\r\n")
            while sock.recv(65536):
                pass
        assert listening(process.pid) == (2 if imported else 1)
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert (b"aiohttp" in output) == (b"memlite.server.http" in output) == imported
    assert b"prometheus_client" not in output


def listening(pid: int) -> int:
    """Return how many sockets of a process listen for connections."""
    links = {str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()}
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    rows = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    return sum(row[3] == "0A" and f"socket:[{row[9]}]" in links for row in rows)


def refusal(*arguments: str, before: str = "") -> tuple[int, str]:
    code = f"import sys; {before}\nfrom memlite.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "-p", "0", "-l", "127.0.0.1", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_a_missing_package_is_reported() -> None:
    assert refusal("--http", "0", before="sys.modules['aiohttp'] = None") == (
        71,
        "memlite: --http: aiohttp is not installed: pip install 'memlite-cache[http]'\n",
    )


def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, text = refusal("--http", f"127.0.0.1:{port}")
    assert (code, text) == (
        71,
        f"memlite: failed to listen on HTTP port {port} of 127.0.0.1: Address already in use\n",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            ["--http-token-file", "/none"],
            64,
            "--http-token-file: requires --http",
        ),
        (["--http-hosts", "a"], 64, "--http-hosts: requires --http"),
        (["--http-keys"], 64, "--http-keys: requires --http"),
        (["--http-metric-names", "both"], 64, "--http-metric-names: requires --http"),
        (["--http", "localhost"], 64, "must end in a port, such as 9150 or 0.0.0.0:9150"),
        (["--http", "70000"], 64, "must end in a port"),
        (["--http", "notls:0"], 71, "--http: 'notls' in 'notls:0' requires TLS (-Z)"),
        (["--http", "0", "--http-token-file", "/none"], 71, "--http-token-file: /none: No such"),
    ],
)
def test_invalid_settings(arguments: list[str], code: int, text: str) -> None:
    found, said = refusal(*arguments)
    assert found == code
    assert text in said
    assert said.count("\n") == 1


def test_warnings() -> None:
    with running("memlite", "--http", "0.0.0.0:0") as server:
        assert "can read the metrics (--http-token-file)" in server.log.read_text()


def test_a_unix_socket_for_clients_and_http(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with running("memlite", "--http", f"127.0.0.1:{port}", unix=True):
        assert ask(port, "/healthz")[0] == 200
