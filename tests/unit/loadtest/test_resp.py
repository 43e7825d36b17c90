"""Gets and sets in the protocol of Redis and Valkey."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.client.replies import ReplyError
from memlite.core.errors import ConfigError
from memlite.loadtest.clients.resp import RespScanner, fixed_size_resp_matcher
from memlite.loadtest.dialects import Dialect
from memlite.loadtest.operations import Operations
from memlite.loadtest.program import main
from memlite.loadtest.resp import resp_get, resp_set
from memlite.loadtest.workload import Keys, Values, Workload

# Replies, and what the scanner reports about them.
CASES = [
    (b"+OK\r\n", b"STORED"),
    (b"+PONG\r\n", b"PONG"),
    (b"$5\r\nvalue\r\n", 1),
    (b"$0\r\n\r\n", 1),
    (b"$12\r\n+OK\r\n$-1\r\n\r\n\r\n", 1),
    (b"$-1\r\n", 0),
    (b"-OOM command not allowed\r\n", b"OOM command not allowed"),
]


def test_requests():
    assert resp_get(b"k1") == b"*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n"
    assert resp_set(b"k1", b"a\r\n") == b"*3\r\n$3\r\nSET\r\n$2\r\nk1\r\n$3\r\na\r\n\r\n"


@given(st.lists(st.sampled_from(CASES), max_size=8), st.lists(st.integers(1, 9), max_size=20))
def test_replies_may_arrive_in_any_pieces(cases, sizes):
    data = b"".join(reply for reply, _ in cases)
    expected = [outcome for _, outcome in cases]
    scanner = RespScanner()
    assert scanner.feed(data) == expected
    assert not scanner.in_reply
    found = []
    for size in sizes:
        found += scanner.feed(data[:size])
        data = data[size:]
    found += scanner.feed(data)
    assert found == expected
    assert not scanner.in_reply
    assert scanner.feed(b"$5\r\nval") == []
    assert scanner.in_reply


@pytest.mark.parametrize("data", [b"STORED\r\n", b"$x\r\n", b"x" * 100_000, b"\r\n"])
def test_bytes_that_are_not_a_reply_are_an_error(data):
    with pytest.raises(ReplyError, match="not a Redis reply"):
        RespScanner().feed(data)


@pytest.mark.parametrize("size", [0, 1, 10, 100, 4096])
def test_usual_replies_are_recognized(size):
    value = b"$%d\r\n%b\r\n" % (size, b"\n" * size)
    match = fixed_size_resp_matcher(size)
    assert match(value + b"+OK\r\n" + b"$-1\r\n" + value) == [b"V", b"S", b"E", b"V"]
    for data in (value[:-1], b"+O", b"-ERR x\r\n", b"$7\r\n1234567\r\n", b"+PONG\r\n"):
        assert match(b"+OK\r\n" + data) == [b"S", b""]


def test_operations_are_those_of_memcached():
    workload = Workload(mix={"get": 1.0, "set": 1.0}, keys=Keys(count=200), values=Values(size=5))

    def stream(dialect):
        return Operations(workload, seed=1, client=0, clients=1, dialect=dialect)

    for direct, plain in (
        (stream(Dialect.RESP).take(100), stream(Dialect.MEMCACHED).take(100)),
        (list(stream(Dialect.RESP).preload()), list(stream(Dialect.MEMCACHED).preload())),
    ):
        for one, other in zip(direct, plain, strict=True):
            assert one._replace(request=b"") == other._replace(request=b"")
            line, _, value = other.request.partition(b"\r\n")
            command, key, *_ = line.split()
            expected = resp_get(key) if command == b"get" else resp_set(key, value[:-2])
            assert one.request == expected


@pytest.mark.parametrize(
    "words",
    [
        ["--client", "pymemcache"],
        ["--multiget", "2"],
        ["--noreply"],
        ["--ttl", "5"],
        ["--verify"],
        ["--mix", "get=1,incr=1"],
    ],
)
def test_options_that_resp_does_not_support_are_refused(words, tmp_path):
    named = "incr in the mix" if words[0] == "--mix" else words[0]
    with pytest.raises(ConfigError, match=f"redis-direct cannot be combined with {named}"):
        main(["compare", "--backends", "redis-direct", "--out", str(tmp_path / "out"), *words])
