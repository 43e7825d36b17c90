"""Binary clients of a proxy in front of three nodes."""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlite.cluster.topology import parse_nodes
from memlite.core.version import SERVER_VERSION
from memlite.protocol.packets import Opcode, Status
from tests.support.logins import write_users
from tests.support.packets import NOOP, Reply, count, packet, replies, store, touch
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, Wire, running

Cluster = tuple[RunningServer, tuple[RunningServer, ...]]
KEYS = [b"key:%d" % number for number in range(60)]
DONE = Reply(Opcode.NOOP)


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        nodes = tuple(stack.enter_context(running("memlite")) for _ in range(3))
        yield stack.enter_context(proxy(nodes)), nodes


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    assert ask(started[0], packet(Opcode.FLUSH)) == [Reply(Opcode.FLUSH)]
    return started


def ask(server: RunningServer, request: bytes) -> list[Reply]:
    return replies(server.ask(request))


def fill(cluster: Cluster) -> None:
    """Store each key with itself as the value."""
    stores = b"".join(store(Opcode.SETQ, key, key) for key in KEYS)
    assert ask(cluster[0], stores + NOOP) == [DONE]


def converse(wire: Wire, request: bytes) -> list[Reply]:
    """Send a request followed by a NOOP, and return the replies to both."""
    mark = packet(Opcode.NOOP, opaque=0x12345678)
    wire.send(request + mark)
    return replies(wire.until(b"\x81" + mark[1:]))[:-1]


def test_keys_are_on_the_same_nodes_as_for_text_clients(cluster: Cluster) -> None:
    fill(cluster)
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in cluster[1])
    owner = parse_nodes(addresses).router().index
    for index, node in enumerate(cluster[1]):
        with node.connect() as wire:
            found = {key for key in KEYS if wire.ask(b"mg %b\r\n" % key) == b"HD\r\n"}
        assert found == {key for key in KEYS if owner(key) == index}
    with cluster[0].connect() as wire:
        wire.send(b"get " + b" ".join(KEYS) + b"\r\n")
        assert wire.until(b"END\r\n").count(b"VALUE ") == len(KEYS)


@pytest.mark.parametrize("opcode", [Opcode.GETKQ, Opcode.GATKQ])
def test_quiet_retrievals_from_many_nodes_come_in_order_before_the_noop(
    cluster: Cluster, opcode: Opcode
) -> None:
    fill(cluster)
    exptime = b"\0\0\0\x64" if opcode is Opcode.GATKQ else b""
    wanted = [key for pair in zip(KEYS, KEYS[::-1], strict=True) for key in (*pair, b"none")]
    requests = (packet(opcode, key, exptime, opaque=n) for n, key in enumerate(wanted))
    *found, done = ask(cluster[0], b"".join(requests) + NOOP)
    assert done == DONE
    assert [(one.opaque, one.key, one.value) for one in found] == [
        (number, key, key) for number, key in enumerate(wanted) if key != b"none"
    ]


def test_replies_come_in_the_order_of_the_requests(cluster: Cluster) -> None:
    fill(cluster)
    requests = b"".join(
        packet(Opcode.GET, key, opaque=number) + packet(Opcode.VERSION, opaque=number)
        for number, key in enumerate(KEYS * 5)
    )
    found = ask(cluster[0], requests)
    assert [one.opaque for one in found] == [n for n in range(len(KEYS) * 5) for _ in (0, 1)]
    assert found[1] == Reply(Opcode.VERSION, value=SERVER_VERSION.encode(), opaque=0)


def test_text_and_binary_clients_share_items(cluster: Cluster) -> None:
    front = cluster[0]
    with front.connect() as text:
        assert text.ask(b"set a 7 0 1\r\n5\r\n") == b"STORED\r\n"
        (found,) = ask(front, packet(Opcode.GETK, b"a"))
        assert (found.extras, found.key, found.value) == (b"\0\0\0\7", b"a", b"5")
        assert text.ask(b"cas a 0 0 1 %d\r\n6\r\n" % found.cas) == b"STORED\r\n"
        (late,) = ask(front, store(Opcode.SET, b"a", b"7", cas=found.cas))
        assert late.status == Status.EXISTS
        (counted,) = ask(front, count(Opcode.INCREMENT, b"a", 4))
        assert counted.number == 10
        assert text.ask(b"ms a 1 C%d\r\nx\r\n" % counted.cas) == b"HD\r\n"


def test_quiet_changes_are_carried_out(cluster: Cluster) -> None:
    requests = (
        store(Opcode.SETQ, b"a", b"b")
        + packet(Opcode.APPENDQ, b"a", value=b"c")
        + packet(Opcode.PREPENDQ, b"a", value=b"a")
        + store(Opcode.ADDQ, b"n", b"1")
        + count(Opcode.INCREMENTQ, b"n", 9)
        + count(Opcode.DECREMENTQ, b"m", 9, 5)
        + store(Opcode.REPLACEQ, b"n", b"100", 3)
        + store(Opcode.SETQ, b"d", b"")
        + packet(Opcode.DELETEQ, b"d")
    )
    gets = (packet(Opcode.GET, key) for key in (b"a", b"n", b"m", b"d"))
    found = ask(cluster[0], requests + b"".join(gets))
    assert [one.value for one in found] == [b"abc", b"100", b"5", b"Not found"]


def test_failures_of_quiet_changes_are_answered(cluster: Cluster) -> None:
    requests = (
        store(Opcode.REPLACEQ, b"a", b"x")
        + packet(Opcode.DELETEQ, b"a")
        + packet(Opcode.APPENDQ, b"a", value=b"x")
        + count(Opcode.INCREMENTQ, b"a", 1, exptime=2**32 - 1)
        + store(Opcode.SETQ, b"a", b"x")
        + store(Opcode.ADDQ, b"a", b"y")
        + count(Opcode.DECREMENTQ, b"a", 1)
        + packet(Opcode.DELETEQ, b"a", cas=2**63)
    )
    assert [(one.opcode, one.status) for one in ask(cluster[0], requests + NOOP)] == [
        (Opcode.REPLACEQ, Status.NOT_FOUND),
        (Opcode.DELETEQ, Status.NOT_FOUND),
        (Opcode.APPENDQ, Status.NOT_STORED),
        (Opcode.INCREMENTQ, Status.NOT_FOUND),
        (Opcode.ADDQ, Status.EXISTS),
        (Opcode.DECREMENTQ, Status.NON_NUMERIC),
        (Opcode.DELETEQ, Status.EXISTS),
        (Opcode.NOOP, Status.SUCCESS),
    ]


@pytest.mark.parametrize("key", [b"a b", b"\n", b"\r\nget b\r\n \0\xff", b" " * 186, b"\t\0\r"])
def test_keys_of_any_bytes(cluster: Cluster, key: bytes) -> None:
    requests = (
        store(Opcode.SET, key, b"1", 5)
        + packet(Opcode.GETK, key)
        + touch(Opcode.GATKQ, key, 100)
        + touch(Opcode.TOUCH, key, 100)
        + count(Opcode.INCREMENT, key, 41)
        + packet(Opcode.APPEND, key, value=b"0")
        + packet(Opcode.GETQ, key)
        + packet(Opcode.DELETE, key)
        + packet(Opcode.GETK, key)
    )
    found = ask(cluster[0], requests)
    assert [one.status for one in found] == [Status.SUCCESS] * 8 + [Status.NOT_FOUND]
    shown = [(one.extras[-1:], one.key, one.value) for one in found]
    assert shown[1:4] == [(b"\5", key, b"1"), (b"\5", key, b"1"), (b"\5", b"", b"")]
    assert found[4].number == 42
    assert shown[6] == (b"\5", b"", b"420")
    assert shown[8] == (b"", key, b"")


def test_a_key_that_cannot_be_sent_to_a_node_is_refused(cluster: Cluster) -> None:
    key = b" " * 187
    requests = [
        packet(Opcode.GETKQ, key),
        store(Opcode.SETQ, key, b"x"),
        store(Opcode.SET, key, bytes(1100000)),
        packet(Opcode.DELETE, key),
    ]
    *refused, done = ask(cluster[0], b"".join(requests) + NOOP)
    text = b"a key with a space, line feed or NUL has at most 186 bytes through a proxy"
    assert [(one.status, one.value) for one in refused] == [(Status.INVALID, text)] * len(requests)
    assert done == DONE


@pytest.mark.parametrize("opcode", [Opcode.SET, Opcode.SETQ])
def test_a_value_that_is_too_large_removes_the_old_one(cluster: Cluster, opcode: Opcode) -> None:
    old = store(Opcode.SETQ, b"a", b"1")
    request = store(opcode, b"a", bytes(1100000)) + packet(Opcode.GET, b"a")
    refused, gone = ask(cluster[0], old + request)
    assert (refused.status, refused.value) == (Status.TOO_LARGE, b"Too large.")
    assert gone.status == Status.NOT_FOUND


def test_a_value_that_is_too_large_to_be_appended_leaves_the_old_one(cluster: Cluster) -> None:
    old = store(Opcode.SETQ, b"a", b"1")
    request = packet(Opcode.APPEND, b"a", value=bytes(1100000)) + packet(Opcode.GET, b"a")
    refused, found = ask(cluster[0], old + request)
    assert refused.status == Status.TOO_LARGE
    assert found.value == b"1"


def test_large_values_pass(cluster: Cluster) -> None:
    value = bytes(range(256)) * 4000
    stored, found = ask(cluster[0], store(Opcode.SET, b"a", value, 3) + packet(Opcode.GET, b"a"))
    assert stored.status == Status.SUCCESS
    assert found == Reply(Opcode.GET, extras=b"\0\0\0\3", value=value, cas=stored.cas)


@pytest.mark.parametrize("request_", [packet(Opcode.FLUSH), packet(Opcode.FLUSHQ, extras=bytes(4))])
def test_a_flush_reaches_every_node(cluster: Cluster, request_: bytes) -> None:
    fill(cluster)
    assert ask(cluster[0], request_ + NOOP)[-1] == DONE
    for node in cluster[1]:
        with node.connect() as wire:
            wire.send(b"get " + b" ".join(KEYS) + b"\r\n")
            assert wire.until(b"END\r\n") == b"END\r\n"


def test_a_delayed_flush_is_delayed(cluster: Cluster) -> None:
    fill(cluster)
    with cluster[0].connect() as wire:
        assert converse(wire, packet(Opcode.FLUSH, extras=b"\0\0\x0e\x10")) == [Reply(Opcode.FLUSH)]
        assert len(converse(wire, b"".join(packet(Opcode.GETQ, key) for key in KEYS))) == len(KEYS)


def test_a_flush_that_nodes_refuse() -> None:
    with running("memlite", "-F") as node, proxy([node]) as front:
        (refused,) = ask(front, packet(Opcode.FLUSH))
        assert (refused.status, refused.value) == (Status.AUTH_ERROR, b"Auth failure.")


def test_requests_that_the_proxy_answers_itself(cluster: Cluster) -> None:
    with cluster[0].connect() as wire:
        *fields, end = converse(wire, packet(Opcode.STAT))
        assert end == Reply(Opcode.STAT)
        assert (b"proxy_nodes_up", b"3") in {(one.key, one.value) for one in fields}
        assert converse(wire, packet(Opcode.STAT, b"reset")) == [Reply(Opcode.STAT)]
        (refused,) = converse(wire, packet(Opcode.STAT, b"items"))
        assert (refused.status, refused.key) == (Status.INTERNAL_ERROR, b"")
        assert refused.value == b"not possible through a proxy; ask the nodes"
        assert converse(wire, packet(Opcode.VERBOSITY, extras=bytes(4))) == [
            Reply(Opcode.VERBOSITY)
        ]


@pytest.mark.parametrize("opcode", [Opcode.QUIT, Opcode.QUITQ])
def test_quit_is_carried_out_after_earlier_requests_are_answered(
    cluster: Cluster, opcode: Opcode
) -> None:
    fill(cluster)
    before = b"".join(packet(Opcode.GETK, key) for key in KEYS[:9])
    with cluster[0].connect() as wire:
        wire.send(before + packet(opcode) + packet(Opcode.GET, b"key:1"))
        found = replies(wire.rest())
    assert [one.key for one in found[:9]] == KEYS[:9]
    assert found[9:] == ([Reply(Opcode.QUIT)] if opcode is Opcode.QUIT else [])


def test_a_malformed_packet_is_answered_in_order(cluster: Cluster) -> None:
    fill(cluster)
    found = ask(cluster[0], packet(Opcode.GETK, b"key:1") + packet(Opcode.GET) + NOOP)
    assert [(one.key, one.status) for one in found] == [(b"key:1", 0), (b"", Status.INVALID)]


def test_the_proxy_can_be_limited_to_one_protocol(cluster: Cluster) -> None:
    nodes = cluster[1]
    with proxy(nodes, "-B", "binary") as front:
        assert ask(front, NOOP) == [DONE]
        assert front.ask(b"get a\r\nget a\r\nget a\r\nget a\r\n") == b""
    with proxy(nodes, "-B", "ascii") as front:
        assert front.ask(b"get a\r\n") == b"END\r\n"
        assert front.ask(NOOP) == b"CLIENT_ERROR bad command line format\r\n"


def test_the_first_byte_of_a_connection_selects_its_protocol(cluster: Cluster) -> None:
    """This includes a first request that needs no parser because it was seen before."""
    for _ in range(3):
        with cluster[0].connect() as wire:
            assert wire.ask(b"get a\r\n") == b"END\r\n"
            assert wire.ask(NOOP) == b"CLIENT_ERROR bad command line format\r\n"


@pytest.mark.parametrize("both", [False, True], ids=["binary", "both"])
def test_passwords(cluster: Cluster, tmp_path: Path, both: bool) -> None:
    users = write_users(tmp_path, b"ada:pwd\n")
    arguments = ["-S", "-Y", str(users), "-B", "auto" if both else "binary"]
    login = packet(Opcode.SASL_AUTH, b"PLAIN", value=b"\0ada\0pwd")
    with proxy(cluster[1], *arguments) as front:
        (refused,) = ask(front, packet(Opcode.GET, b"a"))
        assert refused.status == Status.AUTH_ERROR
        (wrong,) = ask(front, packet(Opcode.SASL_AUTH, b"PLAIN", value=b"\0ada\0pwx"))
        assert wrong.status == Status.AUTH_ERROR
        with front.connect() as wire:
            wire.send(login)
            assert wire.exactly(24 + 13).endswith(b"Authenticated")
            (stored,) = converse(wire, store(Opcode.SET, b"a", b"1"))
            assert stored.status == Status.SUCCESS
            (again,) = converse(wire, login)
            assert again.status == Status.AUTH_ERROR
        if both:
            with front.connect() as wire:
                assert wire.ask(b"get a\r\n") == b"CLIENT_ERROR unauthenticated\r\n"
                assert wire.ask(b"set auth 0 0 7\r\nada pwd\r\n") == b"STORED\r\n"
                assert wire.ask(b"mg a\r\n") == b"HD\r\n"


# Client libraries


def test_python_binary_memcached(cluster: Cluster) -> None:
    bmemcached = pytest.importorskip("bmemcached")
    client = bmemcached.Client([f"127.0.0.1:{cluster[0].port}"], socket_timeout=60)
    assert client.flush_all()
    assert client.set("name", "value", time=100)
    assert client.get("name") == "value"
    assert client.get("nothing") is None
    assert not client.add("name", "other")
    value, unique = client.gets("name")
    assert client.cas("name", value + "!", unique)
    assert not client.cas("name", "late", unique)
    assert client.set("long", "x" * 5000)
    assert client.get("long") == "x" * 5000
    many = {f"k{index}": str(index) for index in range(300)}
    assert client.set_multi(many) == []
    assert client.get_multi([*many, "nothing"]) == many
    assert client.delete_multi(list(many))
    assert client.incr("count", 5, default=10) == 10
    assert client.incr("count", 5) == 15
    assert client.decr("count", 20) == 0
    assert client.delete("name")
    assert client.get("name") is None
    assert next(iter(client.stats().values()))["proxy_nodes"]
    client.disconnect_all()


def test_pylibmc(cluster: Cluster) -> None:
    pylibmc = pytest.importorskip("pylibmc", reason="pylibmc is not installed, see .ci/run")
    address = f"127.0.0.1:{cluster[0].port}"
    client = pylibmc.Client([address], binary=True, behaviors={"cas": True})
    assert client.flush_all()
    assert client.set("name", "value", time=100)
    assert client.get("name") == "value"
    assert not client.add("name", "other")
    assert client.set_multi({"a": 1, "b": 2}) == []
    assert client.get_multi(["a", "b", "c"]) == {"a": 1, "b": 2}
    value, unique = client.gets("name")
    assert client.cas("name", value + "!", unique)
    assert not client.cas("name", "late", unique)
    assert client.append("name", "?")
    assert client.get("name") == "value!?"
    assert client.incr("a") == 2
    assert client.touch("b", 100)
    large = "x" * 900_000
    assert client.set("large", large)
    assert client.get("large") == large
    assert client.delete("a")
    assert not client.delete("a")
    client.disconnect_all()


def test_libmemcached_conformance(cluster: Cluster) -> None:
    program = shutil.which("memccapable") or shutil.which("memcapable")
    if program is None:
        pytest.skip("memccapable is not installed (apt install libmemcached-tools)")
    run = subprocess.run(
        [program, "-h", "127.0.0.1", "-p", str(cluster[0].port), "-t", "10", "-b"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert re.findall(r"^(.+?) +\[FAIL\]$", run.stdout, re.MULTILINE) == [], run.stdout
    assert run.stdout.count("[pass]") == 27
