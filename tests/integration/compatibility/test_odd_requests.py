"""Barely valid requests: memlite answers and counts them like memcached."""

import contextlib
import re
from collections.abc import Iterator

import pytest

from tests.support.servers import RunningServer, memcached_version, needs_memcached, running

needs_recent = pytest.mark.skipif(
    memcached_version() < (1, 6, 45), reason="no memcached 1.6.45 or later to compare with"
)
KINDS = ["memlite", "memlite-file"]


@pytest.fixture(scope="module", params=KINDS)
def ours(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running(request.param) as server:
        yield server


@pytest.fixture(scope="module")
def theirs() -> Iterator[RunningServer]:
    with running("memcached") as server:
        yield server


REQUESTS = {
    "binary magic": b"mn\r\n\x80abc\r\n\x80\r\n \x80abc def\r\nmn\r\n",
    "E0 in ms": b"ms a 1 E0 c\r\n1\r\nmg a c v\r\n",
    "E0 elsewhere": b"set a 0 0 1\r\n1\r\nmd a I E0\r\nmg a c\r\nma n N0 E0 c\r\nmg z N30 E0 c\r\n",
    "padding": b"".join(
        b"ms %b 1 b\r\n1\r\nmg %b b k v\r\n" % (key, key)
        for key in (b"QQ=A", b"Q=QA", b"=QQA", b"QQ==", b"Q===", b"QUJDRA==ZZZZ", b"QQ=A=A")
    ),
    "F": b"ms a 1 T F\r\n1\r\nms a 1 F T\r\n1\r\nmd a T F\r\nmd a F\r\nmd a F z\r\nmn\r\n",
    "long key in ma": b"ma %b\r\nma %b v\r\nmn\r\n" % (b"k" * 251, b"k" * 251),
    "many flags": b"ma a" + b" v" * 19 + b"\r\nmg a" + b" v" * 19 + b"\r\nmn\r\n",
    "read before": b"ms a 1\r\n1\r\nmg a\r\nmd a I\r\nmg a h\r\nmg a h\r\n",
    **{
        f"number {number!r}": b"set a 0 0 %b\r\n\r\nset b 0 %b 1\r\n1\r\nset c %b 0 1\r\n1\r\n"
        b"get a b c\r\ntouch a %b\r\ngat %b b\r\nset i 0 0 1\r\n7\r\nincr i %b\r\nms d %b\r\n\r\n"
        b"ms e 1 T%b\r\n1\r\nmg e t\r\nmg a R%b t\r\nmg f N%b t\r\nverbosity %b\r\nflush_all %b\r\n"
        % ((number,) * 12)
        for number in (b"-0", b"-00", b"-", b"--", b"+", b"")
    },
}


@needs_memcached
@needs_recent
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
def test_the_replies_are_the_same(
    ours: RunningServer, theirs: RunningServer, request_: bytes
) -> None:
    replies = []
    for server in (ours, theirs):
        server.ask(b"flush_all\r\n")
        # No two servers share cas uniques.
        replies.append(re.sub(rb"(?<= c)[1-9][0-9]*", b"#", server.ask(request_)))
    assert replies[0] == replies[1]


COUNTED = {
    "bad chunk": b"set a 0 0 1\r\n1\r\n" + b"".join(
        b"%b 1%b\r\n222\r\n" % (start, end)
        for start, end in (
            (b"set a 0 0", b""), (b"add a 0 0", b" noreply"), (b"append a 0 0", b""),
            (b"cas a 0 0", b" 1"), (b"ms a", b""),
        )
    ),
    **{
        name: b"set a 0 -1 1\r\n1\r\n" + request
        for name, request in (
            ("add", b"add a 0 0 1\r\n1\r\n"), ("replace", b"replace a 0 0 1\r\n1\r\n"),
            ("append", b"append a 0 0 1\r\n1\r\n"), ("cas", b"cas a 0 0 1 1\r\n1\r\n"),
            ("ms MR", b"ms a 1 MR\r\n1\r\n"), ("ms C", b"ms a 1 C1\r\n1\r\n"), ("me", b"me a\r\n"),
        )
    },
}  # fmt: skip
COUNTERS = ("cmd_set", "get_expired", "get_flushed", "get_misses")


@needs_memcached
@needs_recent
@pytest.mark.parametrize("request_", COUNTED.values(), ids=COUNTED.keys())
def test_the_counters_are_the_same(
    ours: RunningServer, theirs: RunningServer, request_: bytes
) -> None:
    assert _counted(ours, request_) == _counted(theirs, request_)


def _counted(server: RunningServer, request: bytes) -> dict[str, int]:
    server.ask(b"delete a\r\n")
    before = server.stats()
    server.ask(request)
    after = server.stats()
    return {name: int(after[name]) - int(before[name]) for name in COUNTERS}


def test_a_set_over_an_expired_item_counts_the_expired_item() -> None:
    with running("memlite") as server:
        for _ in range(2):
            server.ask(b"set a 0 -1 1\r\n1\r\n")
        assert server.stats()["get_expired"] == "1"


def test_an_item_that_a_flush_has_removed_counts_on_a_file(ours: RunningServer) -> None:
    server = ours
    before = int(server.stats()["get_flushed"])
    server.ask(b"set a 0 0 1\r\n1\r\nflush_all\r\nget a\r\n")
    assert int(server.stats()["get_flushed"]) == before + 1


def test_an_item_stays_marked_as_read_when_it_becomes_stale(ours: RunningServer) -> None:
    assert ours.ask(b"ms a 1\r\n1\r\nmg a\r\nmd a I\r\nmg a h\r\n").endswith(b"HD h1 X W\r\n")


def test_an_mg_that_wins_compares_with_the_cas_unique_it_finds(ours: RunningServer) -> None:
    with ours.connect() as wire:
        wire.send(b"set b 0 0 1\r\n1\r\nmd b I\r\ngets b\r\n")
        shown = re.search(rb"VALUE b 0 1 (\d+)", wire.until(b"END\r\n"))
        assert shown is not None
        wire.send(b"mg b v C%b\r\n" % shown[1])
        assert wire.line() == b"HD X W\r\n"


@pytest.mark.parametrize("protocol", ["ascii", "auto"])
def test_a_line_that_begins_like_a_binary_request_leaves_the_connection_open(protocol: str) -> None:
    with contextlib.ExitStack() as stack:
        wire = stack.enter_context(
            stack.enter_context(running("memlite", "-B", protocol)).connect()
        )
        assert wire.ask(b"mn\r\n") == b"MN\r\n"
        assert wire.ask(b"\x80abc\r\n") == b"ERROR\r\n"
        assert wire.ask(b"mn\r\n") == b"MN\r\n"
