"""``watch``: memcached's log lines, and how slow, lost and many watchers affect the server."""

import re
import signal
import socket
import time
from collections.abc import Callable

import pytest

from tests.support.servers import RunningServer, Wire, memcached_version

Start = Callable[..., RunningServer]

LINE = re.compile(rb"ts=\d+\.\d+ gid=(\d+) (.*)\n")


def older(server: RunningServer) -> bool:
    """Return whether the server is a memcached older than 1.6.45."""
    return server.kind == "memcached" and memcached_version() < (1, 6, 45)


def watch(server: RunningServer, arguments: bytes = b"") -> Wire:
    wire = server.connect()
    assert wire.ask(b"watch %b\r\n" % arguments if arguments else b"watch\r\n") == b"OK\r\n"
    return wire


def number_of(wire: Wire) -> int:
    """Return the server's file descriptor for a connection."""
    address, port = wire.sock.getsockname()[:2]
    stats = wire.stats("conns")
    (found,) = (name for name, value in stats.items() if value == f"tcp:{address}:{port}")
    return int(found.partition(":")[0])


def events(watcher: Wire, count: int, number: int) -> list[str]:
    """Return the next lines in the order of their events, without the variable fields."""
    found = []
    for _ in range(count):
        match = LINE.fullmatch(watcher.line())
        assert match
        found.append((int(match[1]), match[2].decode()))
    assert [gid for gid, _ in found] == sorted({gid for gid, _ in found})
    return [line.replace(f"cfd={number} ", "").removesuffix(f" cfd={number}") for _, line in found]


def get(key: str, state: str = "not_found", class_id: int = 0, size: int = 0) -> str:
    return f"type=item_get key={key} status={state} clsid={class_id} size={size}"


def store(key: str, state: str, command: str, ttl: int, class_id: int, size: int) -> str:
    return (
        f"type=item_store key={key} status={state} cmd={command} ttl={ttl} clsid={class_id} "
        f"size={size}"
    )


CASES: list[tuple[bytes, list[str]]] = [
    (b"get a\r\n", [get("a")]),
    (b"set a 0 0 5\r\nhello\r\n", [get("a"), store("a", "stored", "set", 0, 1, 5)]),
    (b"set a 1 60 2\r\nhi\r\n", [get("a", "found", 1, 5), store("a", "stored", "set", 60, 1, 2)]),
    (b"get a b a\r\n", [get("a", "found", 1, 2), get("b"), get("a", "found", 1, 2)]),
    (b"gets a\r\n", [get("a", "found", 1, 2)]),
    (b"gat 100 a\r\n", [get("a", "found", 1, 2)]),
    (b"touch a 100\r\n", [get("a", "found", 1, 2)]),
    (b"touch b 100\r\n", [get("b")]),
    (b"add a 0 0 1\r\nx\r\n", [get("a", "found", 1, 2), store("a", "not_stored", "add", 0, 1, 1)]),
    (b"add b 0 100 1\r\nx\r\n", [get("b"), store("b", "stored", "add", 100, 1, 1)]),
    (b"replace c 0 9 1\r\nx\r\n", [get("c"), store("c", "not_stored", "replace", 9, 1, 1)]),
    (b"replace b 0 0 1\r\ny\r\n",
     [get("b", "found", 1, 1), store("b", "stored", "replace", 0, 1, 1)]),
    (b"append b 7 50 300\r\n%b\r\n" % (b"z" * 300),
     [get("b", "found", 1, 1), store("b", "stored", "append", 0, 7, 301)]),
    (b"append c 7 50 3\r\nzzz\r\n", [get("c"), store("c", "not_stored", "append", 50, 1, 3)]),
    (b"prepend a 0 0 2\r\nzz\r\n",
     [get("a", "found", 1, 2), store("a", "stored", "prepend", 100, 1, 4)]),
    (b"cas a 0 0 1 1\r\nx\r\n", [get("a", "found", 1, 4), store("a", "exists", "cas", 0, 1, 1)]),
    (b"cas c 0 0 1 1\r\nx\r\n", [get("c"), store("c", "not_found", "cas", 0, 1, 1)]),
    (b"set n 0 0 1\r\n9\r\n", [get("n"), store("n", "stored", "set", 0, 1, 1)]),
    (b"incr n 1\r\n", [get("n", "found", 1, 1)]),
    (b"decr n 1\r\n", [get("n", "found", 1, 2)]),
    (b"incr c 1\r\n", [get("c")]),
    (b"get x#y%\xc3\xa9\r\n", [get("x%23y%25%C3%A9")]),
    (b"delete n\r\n",
     [get("n", "found", 1, 2), "type=deleted key=n cmd=delete clsid=1 size=2"]),
    (b"delete n\r\n", [get("n")]),
]  # fmt: skip


def test_lines(server: RunningServer) -> None:
    server.ask(b"".join(b"delete %b\r\n" % key for key in (b"a", b"b", b"c", b"n", b"new")))
    kinds = b"fetchers mutations" + (b"" if older(server) else b" deletions")
    with watch(server, kinds) as watcher, server.connect() as client:
        number = number_of(client)
        for request, expected in CASES:
            if older(server):
                expected = [line for line in expected if "type=deleted" not in line]
            client.send(request)
            found = events(watcher, len(expected), number)
            assert [re.sub(r"ttl=99|ttl=100", "ttl=100", line) for line in found] == expected


META_CASES: list[tuple[bytes, list[str]]] = [
    (b"mg a v\r\n", [get("a")]),
    (b"ms a 2 T60\r\nhi\r\n", [get("a"), store("a", "stored", "set", 60, 1, 2)]),
    (b"mg a v\r\n", [get("a", "found", 1, 2)]),
    (b"ms a 1 ME\r\nx\r\n", [get("a", "found", 1, 2), store("a", "not_stored", "add", 0, 1, 1)]),
    (b"ms a 1 MA\r\nx\r\n", [get("a", "found", 1, 2), store("a", "stored", "append", 60, 1, 3)]),
    (
        b"ms a 1 C999999999\r\nx\r\n",
        [get("a", "found", 1, 3), store("a", "exists", "cas", 0, 1, 1)],
    ),
    (b"mg new N30 v\r\n", [get("new")]),
    (b"ma n\r\n", [get("n")]),
    (b"ma n N0 J5\r\n", [get("n"), get("n"), store("n", "stored", "add", 0, 1, 1)]),
    (b"ma n\r\n", [get("n", "found", 1, 1)]),
    (b"md a I\r\n", [get("a", "found", 1, 3)]),
    (b"md a\r\n", [get("a", "found", 1, 3), "type=deleted key=a cmd=md clsid=1 size=3"]),
    (b"md a\r\n", [get("a")]),
    (b"ms eCB5 1 b\r\nx\r\n", [get("x%20y"), store("x%20y", "stored", "set", 0, 1, 1)]),
]


def test_lines_of_meta_commands(server: RunningServer) -> None:
    if older(server):
        pytest.skip("this version logs less about meta commands")
    server.ask(b"".join(b"delete %b\r\n" % key for key in (b"a", b"b", b"c", b"n", b"new")))
    with watch(server, b"fetchers mutations deletions") as watcher, server.connect() as client:
        number = number_of(client)
        for request, expected in META_CASES:
            client.send(request)
            found = events(watcher, len(expected), number)
            assert [re.sub(r"ttl=59", "ttl=60", line) for line in found] == expected, request


def test_only_requested_streams_are_shown_and_by_default_fetchers(server: RunningServer) -> None:
    with server.connect() as client:
        number = number_of(client)
        client.ask(b"delete a\r\n")
        with watch(server) as fetchers, watch(server, b"mutations") as mutations:
            assert client.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
            client.send(b"get a\r\n")
            assert events(fetchers, 2, number) == [get("a"), get("a", "found", 1, 1)]
            client.send(b"set b 0 0 1\r\nx\r\n")
            assert events(mutations, 2, number) == [
                store("a", "stored", "set", 0, 1, 1), store("b", "stored", "set", 0, 1, 1),
            ]  # fmt: skip


def test_a_value_that_is_too_large(server: RunningServer) -> None:
    with watch(server, b"mutations") as watcher, server.connect() as client:
        client.send(b"set big 0 0 2000000\r\n" + bytes(2_000_000) + b"\r\n")
        (line,) = events(watcher, 1, number_of(client))
        assert line.startswith("type=item_store key=big status=too_large cmd=set ttl=0 ")
        assert line.endswith(" size=0")


def test_a_value_for_which_there_is_no_memory(start: Start) -> None:
    server = start("-M", "-m", "1", "-I", "900k")
    value = b"x" * 900_000
    server.ask(b"set a 0 0 900000\r\n%b\r\n" % value)
    with watch(server, b"mutations") as watcher, server.connect() as client:
        number = number_of(client)
        reply = b"SERVER_ERROR out of memory storing object\r\n"
        assert client.ask(b"set b 0 0 900000\r\n%b\r\n" % value) == reply
        assert " status=no_memory cmd=set " in events(watcher, 1, number)[0]
    assert server.ask(b"get b\r\n") == b"END\r\n"


def test_long_keys_are_not_cut_by_their_encoding(server: RunningServer) -> None:
    with watch(server, b"mutations") as watcher, server.connect() as client:
        assert client.ask(b"set %b 0 0 1\r\nx\r\n" % (b"#" * 250)) == b"STORED\r\n"
        assert b" key=" + b"%23" * 250 + b" " in watcher.line()


def test_evictions(server: RunningServer, start: Start) -> None:
    if server.kind in ("memlite-near", "memlite-asyncio"):
        pytest.skip("the near cache evicts copies, and the event loop makes no difference")
    full = start("-m", "64" if server.kind == "memcached" else "4", kind=server.kind)
    value = b"x" * 10_000
    with full.connect() as client:
        sets = [b"set old%d 0 0 10000 noreply\r\n%b\r\n" % (n, value) for n in range(9000)]
        client.send(b"".join(sets) + b"version\r\n")
        client.line()
        with watch(full, b"evictions") as watcher:
            client.send(b"".join(b"set new%d 0 0 10000 noreply\r\n%b\r\n" % (n, value)
                                 for n in range(200)))  # fmt: skip
            match = LINE.fullmatch(watcher.line())
            assert match
            assert re.fullmatch(
                rb"type=eviction key=old\d+ fetch=no ttl=-1 la=\d+ clsid=22 size=10000", match[2]
            )


def test_connections(server: RunningServer) -> None:
    with watch(server, b"connevents") as watcher:

        def line(cause: Callable[[Wire], object]) -> tuple[bytes, bytes]:
            with server.connect() as client:
                port = client.sock.getsockname()[1]
                cause(client)
                lines = []
                for _ in range(2):
                    match = LINE.fullmatch(watcher.line())
                    assert match
                    lines.append(match[2].replace(b"%d" % port, b"PORT"))
            return lines[0], lines[1]

        peer = rb"rip=127\.0\.0\.1 rport=PORT transport=tcp "
        for cause, reason in (
            (lambda client: client.ask(b"quit\r\n"), b"normal"),
            (lambda client: client.sock.shutdown(socket.SHUT_RDWR), b"normal"),
            (lambda client: client.ask(b"GET / HTTP/1.1\r\n\r\n"), b"error"),
        ):
            if reason == b"error" and older(server):
                continue
            opened, closed = line(cause)
            assert re.fullmatch(rb"type=conn_new " + peer + rb"cfd=\d+", opened)
            assert re.fullmatch(
                rb"type=conn_close " + peer + rb"reason=" + reason + rb" cfd=\d+", closed
            )
            assert opened[opened.rindex(b" ") :] == closed[closed.rindex(b" ") :]


def test_connections_opened_before_the_watcher(start: Start) -> None:
    server = start("-o", "idle_timeout=1")
    with server.connect() as client, watch(server, b"connevents") as watcher:
        number = number_of(client)
        line = watcher.line()
        assert b"type=conn_close rip=127.0.0.1 " in line
        assert line.endswith(b" reason=idle_timeout cfd=%d\n" % number)
        # A watcher sends no commands, but does not count as idle.
        time.sleep(2.5)
        with server.connect():
            assert b"type=conn_new" in watcher.line()


def test_connections_to_a_unix_socket(start: Start) -> None:
    server = start(unix=True)
    with watch(server, b"connevents") as watcher, server.connect():
        assert b" type=conn_new rip=unix rport=0 transport=local cfd=" in watcher.line()


def test_arguments(server: RunningServer) -> None:
    with server.connect() as client:
        assert client.ask(b"watch nonsense\r\n") == b"ERROR\r\n"
        assert client.ask(b"watch fetchers nonsense\r\n") == b"ERROR\r\n"
        assert client.ask(b"watch fetcherss\r\n") == b"ERROR\r\n"
    watch(server, b"rawcmds sysevents").sock.close()
    if not older(server):
        watch(server, b"proxyreqs proxyevents proxyuser").sock.close()
        with server.connect() as client, watch(server, b"mut f") as abbreviated:
            number = number_of(client)
            client.send(b"get nothing\r\n")
            assert events(abbreviated, 1, number) == [get("nothing")]


def test_commands_may_not_be_pipelined_before_it(server: RunningServer) -> None:
    if older(server):
        pytest.skip("this version allows it")
    with server.connect() as client:
        client.send(b"get nothing\r\nwatch\r\nget nothing\r\n")
        error = b"ERROR cannot pipeline other commands before watch\r\n"
        expected = b"END\r\n" + error + b"END\r\n"
        assert client.exactly(len(expected)) == expected


def test_input_from_a_watcher_is_ignored(server: RunningServer) -> None:
    with server.connect() as watcher, server.connect() as client:
        watcher.send(b"watch\r\nset a 0 0 1\r\nx\r\n")
        assert watcher.line() == b"OK\r\n"
        for _ in range(3):
            watcher.send(b"get nothing\r\n" * 1000)
        number = number_of(client)
        client.send(b"get other\r\n")
        assert events(watcher, 1, number) == [get("other")]


def test_it_can_be_disabled(server: RunningServer, start: Start) -> None:
    closed = start("-W", kind=server.kind)
    assert closed.ask(b"watch\r\n") == b"CLIENT_ERROR watch commands not allowed\r\n"


def test_there_may_be_twenty_watchers(start: Start) -> None:
    server = start()
    watchers = [watch(server) for _ in range(20)]
    with server.connect() as client:
        reply = b"WATCHER_TOO_MANY log watcher limit reached\r\n"
        assert client.ask(b"watch\r\n") == reply
        assert client.stats()["log_watchers"] == "20"
        assert client.ask(b"get a\r\n") == b"END\r\n"
        number = number_of(client)
        for watcher in watchers:
            assert events(watcher, 1, number) == [get("a")]
            watcher.sock.close()
        _until(lambda: client.stats()["log_watchers"] == "0")
    watch(server).sock.close()


# A near cache writes its lines as the engine of a file does.
@pytest.mark.parametrize(
    "kind",
    [
        "memlite",
        pytest.param("memlite-asyncio", marks=pytest.mark.slow),
        pytest.param("memlite-near", marks=pytest.mark.slow),
        "memlite-file",
    ],
)
def test_a_watcher_that_does_not_read_loses_lines_and_delays_no_others(
    start: Start, kind: str
) -> None:
    server = start("-o", "watcher_logbuf_size=64", kind=kind)
    with server.connect() as client:
        assert client.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        line = b"VALUE a 0 1\r\nx\r\nEND\r\n"
        with watch(server) as slow, watch(server, b"mutations") as other:
            memory = server.resident_kib()
            commands, at_once = 100_000, 500
            for _ in range(commands // at_once):
                client.send(b"get a\r\n" * at_once)
                assert client.exactly(len(line) * at_once) == line * at_once
            assert server.resident_kib() - memory < 8 * 1024
            stats = client.stats()
            sent, skipped = int(stats["log_watcher_sent"]), int(stats["log_watcher_skipped"])
            assert sent + skipped == int(stats["log_worker_written"]) == commands
            assert skipped > 10_000  # the rest is in the sockets' buffers
            assert stats["log_worker_dropped"] == "0"
            client.ask(b"set b 0 0 1\r\nx\r\n")  # other watchers lose nothing
            assert b"key=b" in other.line()
            # When the watcher reads again, it gets the buffered lines, and with the next line the
            # number of lost ones.
            asked = missed = 0
            for number in range(commands):
                if not number % 1000:
                    client.send(b"get a\r\n")
                    assert client.exactly(len(line)) == line
                    asked += 1
                text = slow.line()
                if not LINE.fullmatch(text):
                    found = re.fullmatch(rb"skipped=(\d+)\n", text)
                    assert found
                    missed = int(found[1])
                    break
            assert skipped <= missed <= skipped + asked
            assert LINE.fullmatch(slow.line())
        _until(lambda: client.stats()["log_watchers"] == "0")
        client.ask(b"stats reset\r\n")
        assert client.stats()["log_watcher_skipped"] == "0"


def test_a_watcher_disconnects_with_unread_lines(start: Start) -> None:
    server = start("-o", "watcher_logbuf_size=8")
    with server.connect() as client:
        for _ in range(3):
            watcher = watch(server, b"fetchers mutations")
            client.send(b"get nothing\r\n" * 20_000)
            client.exactly(len(b"END\r\n") * 20_000)
            watcher.sock.close()  # the unread lines cause a reset
        _until(lambda: client.stats()["log_watchers"] == "0")
        assert client.stats()["curr_connections"] == "1"


def test_the_server_stops_at_once_in_spite_of_a_watcher(start: Start) -> None:
    server = start()
    with watch(server), watch(server, b"connevents"):
        begun = time.monotonic()
        assert server.stop(signal.SIGUSR1) == 0  # which would wait for ten seconds
        assert time.monotonic() - begun < 5


def test_a_watcher_is_listed_in_stats_conns(server: RunningServer) -> None:
    with watch(server), server.connect() as client:
        assert "conn_watch" in client.stats("conns").values()


def test_watching_does_not_affect_latency_samples_and_prefix_counters(start: Start) -> None:
    server = start()
    with server.connect() as client, watch(server):
        client.ask(b"stats detail on\r\n")
        client.ask(b"set a:b 0 0 1\r\nx\r\n")
        for _ in range(512):  # one of which is certainly measured
            client.send(b"get a:b\r\n")
            client.until(b"END\r\n")
        assert client.stats("settings")["detail_enabled"] == "yes"
        assert int(client.stats("latency")["get:samples"]) >= 1
        assert client.ask(b"stats detail dump\r\n") == b"PREFIX a get 512 hit 512 set 1 del 0\r\n"


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
