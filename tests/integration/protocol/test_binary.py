"""The binary protocol's cases, reply by reply, against memlite and against the real memcached.

memlite follows memcached 1.6.45. If the two differ deliberately, a case applies to one kind of
server and says why.
"""

import itertools
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from memlite.core.version import SERVER_VERSION
from memlite.protocol.packets import Opcode, Status
from tests.support.packets import HEADER, NOOP, Reply, count, packet, replies, store, touch
from tests.support.servers import RunningServer, memcached_version, needs_memcached

Start = Callable[..., RunningServer]

KINDS = ["memlite", "memlite-file", pytest.param("memcached", marks=needs_memcached)]

K250 = b"k" * 250
SOME = -1
"""Equals any cas unique except 0."""
BINARY_KEY = b" a\r\nget b\0\xff"

NOT_FOUND = b"Not found"
EXISTS = b"Data exists for key."
NOT_STORED = b"Not stored."
INVALID = b"Invalid arguments"
UNKNOWN = b"Unknown command"
TOO_LARGE = b"Too large."
NON_NUMERIC = b"Non-numeric server-side value for incr or decr"


@dataclass
class Case:
    request: bytes
    replies: list[Reply]
    only: str = ""  # the kind of server, for deliberate differences
    since: tuple[int, ...] = ()  # the first version of memcached with this reply


def ok(opcode: int, value: bytes = b"", cas: int = 0) -> Reply:
    return Reply(opcode, value=value, cas=cas)


def stored(opcode: int = Opcode.SET) -> Reply:
    return Reply(opcode, cas=SOME)


def hit(opcode: int, value: bytes, flags: int = 0, key: bytes = b"") -> Reply:
    return Reply(opcode, Status.SUCCESS, struct.pack(">I", flags), key, value, cas=SOME)


def number(opcode: int, value: int) -> Reply:
    return ok(opcode, struct.pack(">Q", value), SOME)


def failed(opcode: int, status: Status, text: bytes) -> Reply:
    return Reply(opcode, status, value=text)


def missed(opcode: int) -> Reply:
    return failed(opcode, Status.NOT_FOUND, NOT_FOUND)


DONE = ok(Opcode.NOOP)
SET_A = store(Opcode.SET, b"a", b"1", 5)
GET_A = packet(Opcode.GET, b"a")
LARGE = b"y" * 1048577
ENDED = failed(Opcode.NOOP, Status.INVALID, INVALID)

CASES = [
    Case(NOOP, [DONE]),
    # Retrieval: quiet variants reply to hits; the opcode of a reply is that of the request.
    *(
        Case(
            SET_A + packet(one, b"a") + packet(one, b"no") + NOOP,
            [
                stored(),
                hit(one, b"1", 5, b"a" if one in (Opcode.GETK, Opcode.GETKQ) else b""),
                *(
                    {
                        Opcode.GET: [missed(one)],
                        Opcode.GETK: [Reply(one, Status.NOT_FOUND, key=b"no")],
                    }.get(one, [])
                ),
                DONE,
            ],
        )
        for one in (Opcode.GET, Opcode.GETQ, Opcode.GETK, Opcode.GETKQ)
    ),
    Case(
        store(Opcode.SET, K250, b"") + packet(Opcode.GETK, K250),
        [stored(), hit(Opcode.GETK, b"", 0, K250)],
    ),
    Case(
        store(Opcode.SET, BINARY_KEY, b"\r\nEND\r\n", 2**32 - 1) + packet(Opcode.GETK, BINARY_KEY),
        [stored(), hit(Opcode.GETK, b"\r\nEND\r\n", 2**32 - 1, BINARY_KEY)],
    ),
    Case(
        store(Opcode.SET, b"a", b"z" * 100_000) + GET_A,
        [stored(), hit(Opcode.GET, b"z" * 100_000)],
    ),
    # Storage
    Case(store(Opcode.SETQ, b"a", b"1") + GET_A, [hit(Opcode.GET, b"1")]),
    Case(
        store(Opcode.ADD, b"a", b"1") * 2 + store(Opcode.ADDQ, b"a", b"2") + GET_A,
        [
            stored(Opcode.ADD),
            failed(Opcode.ADD, Status.EXISTS, EXISTS),
            failed(Opcode.ADDQ, Status.EXISTS, EXISTS),
            hit(Opcode.GET, b"1"),
        ],
    ),
    Case(
        store(Opcode.REPLACE, b"a", b"1")
        + store(Opcode.REPLACEQ, b"a", b"1")
        + SET_A
        + store(Opcode.REPLACE, b"a", b"2")
        + store(Opcode.REPLACEQ, b"a", b"3", 9)
        + GET_A,
        [
            missed(Opcode.REPLACE),
            missed(Opcode.REPLACEQ),
            stored(),
            stored(Opcode.REPLACE),
            hit(Opcode.GET, b"3", 9),
        ],
    ),
    Case(
        packet(Opcode.APPEND, b"a", value=b"2")
        + packet(Opcode.PREPENDQ, b"a", value=b"0")
        + SET_A
        + packet(Opcode.APPEND, b"a", value=b"2")
        + packet(Opcode.PREPEND, b"a", value=b"0")
        + packet(Opcode.APPENDQ, b"a", value=b"3")
        + packet(Opcode.PREPENDQ, b"a")
        + GET_A,
        [
            failed(Opcode.APPEND, Status.NOT_STORED, NOT_STORED),
            failed(Opcode.PREPENDQ, Status.NOT_STORED, NOT_STORED),
            stored(),
            stored(Opcode.APPEND),
            stored(Opcode.PREPEND),
            hit(Opcode.GET, b"0123", 5),
        ],
    ),
    # Cas uniques: given one, set, add and replace only replace the item that has it.
    *(
        Case(
            store(one, b"a", b"2", cas=2**63) + SET_A + store(one, b"a", b"2", cas=2**63) + GET_A,
            [missed(one), stored(), failed(one, Status.EXISTS, EXISTS), hit(Opcode.GET, b"1", 5)],
        )
        for one in (Opcode.SET, Opcode.SETQ, Opcode.ADD, Opcode.REPLACE)
    ),
    Case(
        packet(Opcode.APPEND, b"a", value=b"2", cas=2**63)
        + SET_A
        + packet(Opcode.APPEND, b"a", value=b"2", cas=2**63)
        + GET_A,
        [
            failed(Opcode.APPEND, Status.NOT_STORED, NOT_STORED),
            stored(),
            failed(Opcode.APPEND, Status.EXISTS, EXISTS),
            hit(Opcode.GET, b"1", 5),
        ],
    ),
    # Exptimes are unsigned: -1 is a time in 2106.
    Case(
        store(Opcode.SET, b"a", b"1", 0, 2**32 - 1)
        + store(Opcode.SET, b"b", b"1", 0, 2592001)
        + GET_A
        + packet(Opcode.GETQ, b"b")
        + NOOP,
        [stored(), stored(), hit(Opcode.GET, b"1"), DONE],
    ),
    # Values that are too large: a set removes the old item.
    Case(
        SET_A + store(Opcode.ADD, b"a", LARGE) + packet(Opcode.APPEND, b"a", value=LARGE) + GET_A,
        [
            stored(),
            failed(Opcode.ADD, Status.TOO_LARGE, TOO_LARGE),
            failed(Opcode.APPEND, Status.TOO_LARGE, TOO_LARGE),
            hit(Opcode.GET, b"1", 5),
        ],
    ),
    *(
        Case(
            SET_A + store(one, b"a", LARGE) + GET_A,
            [stored(), failed(one, Status.TOO_LARGE, TOO_LARGE), missed(Opcode.GET)],
        )
        for one in (Opcode.SET, Opcode.SETQ)
    ),
    Case(
        store(Opcode.SET, b"a", b"y" * 700_000) + packet(Opcode.APPEND, b"a", value=b"y" * 700_000),
        [stored(), failed(Opcode.APPEND, Status.NOT_STORED, NOT_STORED)],
    ),
    # Deletion
    Case(
        SET_A
        + packet(Opcode.DELETE, b"a", cas=2**63)
        + packet(Opcode.DELETE, b"a")
        + packet(Opcode.DELETE, b"a")
        + packet(Opcode.DELETEQ, b"a")
        + SET_A
        + packet(Opcode.DELETEQ, b"a")
        + GET_A,
        [
            stored(),
            failed(Opcode.DELETE, Status.EXISTS, EXISTS),
            ok(Opcode.DELETE),
            missed(Opcode.DELETE),
            missed(Opcode.DELETEQ),
            stored(),
            missed(Opcode.GET),
        ],
    ),
    # Counters
    Case(
        count(Opcode.INCREMENT, b"a", 1, 5, 0xFFFFFFFF)
        + count(Opcode.DECREMENTQ, b"a", 1, 5, 0xFFFFFFFF)
        + count(Opcode.INCREMENT, b"a", 1, 5)
        + count(Opcode.INCREMENTQ, b"a", 10)
        + count(Opcode.INCREMENT, b"a", 10, 99, 0xFFFFFFFF)
        + count(Opcode.DECREMENT, b"a", 20)
        + count(Opcode.DECREMENT, b"a", 20)
        + GET_A,
        [
            missed(Opcode.INCREMENT),
            missed(Opcode.DECREMENTQ),
            number(Opcode.INCREMENT, 5),
            number(Opcode.INCREMENT, 25),
            number(Opcode.DECREMENT, 5),
            number(Opcode.DECREMENT, 0),
            hit(Opcode.GET, b"0 "),
        ],
    ),
    Case(
        count(Opcode.DECREMENT, b"a", 1, 2**64 - 1)
        + count(Opcode.INCREMENT, b"a", 2)
        + count(Opcode.INCREMENT, b"a", 2**64 - 1)
        + count(Opcode.DECREMENT, b"a", 2**64 - 1),
        [
            number(Opcode.DECREMENT, 2**64 - 1),
            number(Opcode.INCREMENT, 1),
            number(Opcode.INCREMENT, 0),
            number(Opcode.DECREMENT, 0),
        ],
    ),
    Case(
        store(Opcode.SET, b"a", b"x1")
        + count(Opcode.INCREMENT, b"a", 1)
        + count(Opcode.DECREMENTQ, b"a", 1)
        + count(Opcode.INCREMENT, b"a", 1, cas=2**63)
        + store(Opcode.SET, b"a", b"")
        + count(Opcode.INCREMENT, b"a", 1, cas=2**63),
        [
            stored(),
            failed(Opcode.INCREMENT, Status.NON_NUMERIC, NON_NUMERIC),
            failed(Opcode.DECREMENTQ, Status.NON_NUMERIC, NON_NUMERIC),
            failed(Opcode.INCREMENT, Status.EXISTS, EXISTS),
            stored(),
            failed(Opcode.INCREMENT, Status.NON_NUMERIC, NON_NUMERIC),
        ],
    ),
    # TOUCH, whose reply contains the flags too.
    Case(
        SET_A
        + b"".join(touch(one, b"a", 100) for one in (0x1C, 0x1D, 0x1E, 0x23, 0x24))
        + b"".join(touch(one, b"no", 100) for one in (0x1C, 0x1D, 0x1E, 0x23, 0x24))
        + NOOP,
        [
            stored(),
            hit(Opcode.TOUCH, b"", 5),
            hit(Opcode.GAT, b"1", 5),
            hit(Opcode.GATQ, b"1", 5),
            hit(Opcode.GATK, b"1", 5, b"a"),
            hit(Opcode.GATKQ, b"1", 5, b"a"),
            missed(Opcode.TOUCH),
            missed(Opcode.GAT),
            Reply(Opcode.GATK, Status.NOT_FOUND, key=b"no"),
            DONE,
        ],
    ),
    Case(
        SET_A + touch(Opcode.GAT, b"a", 2592001) + GET_A,
        [stored(), hit(Opcode.GAT, b"1", 5), missed(Opcode.GET)],
    ),
    # Other commands
    Case(
        SET_A + packet(Opcode.FLUSH) + GET_A + packet(Opcode.FLUSHQ) + NOOP,
        [stored(), ok(Opcode.FLUSH), missed(Opcode.GET), DONE],
    ),
    Case(
        SET_A
        + packet(Opcode.FLUSH, extras=struct.pack(">I", 1000))
        + packet(Opcode.FLUSHQ, extras=struct.pack(">I", 1000))
        + GET_A
        + packet(Opcode.FLUSH, extras=bytes(4))
        + GET_A,
        [
            stored(),
            ok(Opcode.FLUSH),
            hit(Opcode.GET, b"1", 5),
            ok(Opcode.FLUSH),
            missed(Opcode.GET),
        ],
    ),
    Case(packet(Opcode.QUIT) + NOOP, [ok(Opcode.QUIT)]),
    Case(packet(Opcode.QUITQ) + NOOP, []),
    Case(packet(Opcode.STAT, b"reset") + NOOP, [ok(Opcode.STAT), DONE]),
    Case(packet(Opcode.STAT, b"nonsense") + NOOP, [missed(Opcode.STAT), DONE]),
    Case(
        b"".join(packet(Opcode.STAT, b"detail" + what) for what in (b" on", b" off", b"", b" x")),
        [ok(Opcode.STAT), ok(Opcode.STAT), missed(Opcode.STAT), missed(Opcode.STAT)],
    ),
    Case(
        packet(Opcode.STAT, b"sizes"),
        [Reply(Opcode.STAT, key=b"sizes_status", value=b"disabled"), ok(Opcode.STAT)],
    ),
    Case(packet(Opcode.VERBOSITY, extras=bytes(4)) + NOOP, [ok(Opcode.VERBOSITY), DONE], "memlite"),
    Case(packet(Opcode.VERSION), [ok(Opcode.VERSION, SERVER_VERSION.encode())], "memlite"),
    # Unknown commands
    Case(packet(0x50) + NOOP, [failed(0x50, Status.UNKNOWN_COMMAND, UNKNOWN), DONE]),
    Case(
        packet(0x50, value=b"value") + NOOP,
        [failed(0x50, Status.UNKNOWN_COMMAND, UNKNOWN), DONE],
    ),
    # memcached skips extras and key twice, and so part of the next packet.
    Case(
        packet(0x50, b"key", b"extras", b"value") + NOOP,
        [failed(0x50, Status.UNKNOWN_COMMAND, UNKNOWN), DONE],
        "memlite",
    ),
    *(
        Case(request + NOOP, [failed(request[1], Status.UNKNOWN_COMMAND, UNKNOWN), DONE])
        for request in (
            packet(Opcode.SASL_LIST_MECHS),
            packet(Opcode.SASL_AUTH, b"PLAIN", value=b"\0user\0word"),
            packet(Opcode.SASL_STEP, b"PLAIN"),
        )
    ),
    # Packets that end the connection after a reply
    *(
        Case(NOOP + request + NOOP, [DONE, failed(request[1], Status.INVALID, INVALID)])
        for request in (
            packet(Opcode.GET),
            packet(Opcode.GET, b"a", b"1234"),
            packet(Opcode.GET, b"a", value=b"x"),
            packet(Opcode.GET, b"k" * 251),
            packet(Opcode.GET, b"k" * 3000),
            packet(Opcode.SET, b"a", bytes(4), b"1"),
            packet(Opcode.SET, b"a", bytes(30), b"1"),
            packet(Opcode.SET, b"", bytes(8), b"1"),
            packet(Opcode.APPEND, b"a", bytes(8), b"1"),
            packet(Opcode.DELETE, b"a", bytes(4)),
            packet(Opcode.INCREMENT, b"a", bytes(8)),
            packet(Opcode.TOUCH, b"a"),
            packet(Opcode.FLUSH, extras=bytes(2)),
            packet(Opcode.NOOP, b"a"),
            packet(Opcode.VERSION, value=b"a"),
            packet(Opcode.QUIT, b"a"),
            packet(Opcode.STAT, b"items", b"x"),
            packet(Opcode.SASL_LIST_MECHS, b"a"),
            packet(Opcode.SASL_AUTH, value=b"a"),
        )
    ),
    Case(
        packet(Opcode.GET, b"abc", body=2) + NOOP,
        [failed(Opcode.GET, Status.UNKNOWN_COMMAND, UNKNOWN)],
    ),
    *(
        Case(
            store(Opcode.SET, b"a", b"1", body=size) + NOOP,
            [failed(Opcode.SET, Status.INVALID, INVALID)],
            since=(1, 6, 45),
        )
        for size in (2**30 + 1, 2**31, 2**32 - 1)
    ),
    Case(NOOP + packet(Opcode.NOOP, magic=0x81) + NOOP, [DONE]),
    # Half a packet gets no reply.
    Case(NOOP + GET_A[:-1], [DONE]),
    Case(NOOP + NOOP[:23], [DONE]),
    Case(NOOP + SET_A[:-1], [DONE]),
]


def normal(data: bytes) -> list[Reply]:
    return [replace(one, cas=SOME if one.cas else 0) for one in replies(data)]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_replies(server: RunningServer, case: Case) -> None:
    if case.only and not server.kind.startswith(case.only):
        pytest.skip("a deliberate difference")
    if server.kind == "memcached" and memcached_version() < case.since:
        pytest.skip("this memcached is older")
    server.ask(packet(Opcode.FLUSH))
    assert normal(server.ask(case.request)) == case.replies


def ask(server: RunningServer, request: bytes) -> list[Reply]:
    return replies(server.ask(request))


def test_opaque_is_returned(server: RunningServer) -> None:
    opaques = [0, 1, 2**31, 2**32 - 1]
    requests = [
        make(opaque=opaque)
        for make, opaque in itertools.product(
            [
                lambda opaque: store(Opcode.SET, b"o", b"1", opaque=opaque),
                lambda opaque: packet(Opcode.GET, b"o", opaque=opaque),
                lambda opaque: packet(Opcode.GETK, b"none", opaque=opaque),
                lambda opaque: packet(Opcode.DELETE, b"none", opaque=opaque),
                lambda opaque: packet(Opcode.STAT, b"sizes", opaque=opaque),
                lambda opaque: packet(0x70, opaque=opaque),
            ],
            opaques,
        )
    ]
    found = [one.opaque for one in ask(server, b"".join(requests)) if one.key != b"sizes_status"]
    assert found == opaques * 6


def test_a_cas_unique_is_valid_once(server: RunningServer) -> None:
    first, shown = ask(server, store(Opcode.SET, b"c", b"1") + packet(Opcode.GET, b"c"))
    assert first.cas == shown.cas != 0
    for opcode in (Opcode.SET, Opcode.REPLACE, Opcode.ADD):
        again, late = ask(server, store(opcode, b"c", b"2", cas=first.cas) * 2)
        assert (again.status, late.status) == (Status.SUCCESS, Status.EXISTS)
        assert again.cas not in (0, first.cas)
        first = again
    joined, late = ask(server, packet(Opcode.APPEND, b"c", value=b"0", cas=first.cas) * 2)
    assert (joined.status, late.status) == (Status.SUCCESS, Status.EXISTS)
    counted, late = ask(server, count(Opcode.INCREMENT, b"c", 1, cas=joined.cas) * 2)
    assert (counted.number, late.status) == (21, Status.EXISTS)
    touched, shown = ask(server, touch(Opcode.GAT, b"c", 100) + packet(Opcode.GET, b"c"))
    assert touched.cas == shown.cas
    # On backends with versions, a new expiry creates a new version.
    if server.kind not in ("memlite-file", "memlite-near"):
        assert shown.cas == counted.cas
    late, gone = ask(
        server, packet(Opcode.DELETE, b"c", cas=1) + packet(Opcode.DELETE, b"c", cas=shown.cas)
    )
    assert (late.status, gone.status) == (Status.EXISTS, Status.SUCCESS)


def test_the_two_protocols_share_items(server: RunningServer) -> None:
    assert server.ask(b"set shared 7 0 5\r\nhello\r\n") == b"STORED\r\n"
    (shown,) = ask(server, packet(Opcode.GET, b"shared"))
    assert (shown.extras, shown.value) == (struct.pack(">I", 7), b"hello")
    line = b"gets shared\r\n"
    assert server.ask(line) == b"VALUE shared 7 5 %d\r\nhello\r\nEND\r\n" % shown.cas
    ask(server, store(Opcode.SET, b"shared", b"bye", 9))
    assert server.ask(b"get shared\r\n") == b"VALUE shared 9 3\r\nbye\r\nEND\r\n"


def test_keys_that_are_invalid_in_text_are_not_shown_to_text_clients(server: RunningServer) -> None:
    ask(server, store(Opcode.SET, b"b c", b"1") + store(Opcode.SETQ, b"c\nd", b"1"))
    assert server.ask(b"get b c\r\n") == b"END\r\n"
    assert [one.status for one in ask(server, packet(Opcode.GET, b"b c"))] == [Status.SUCCESS]


def test_keys_that_are_invalid_in_text_are_not_dumped_in_text(memlite: RunningServer) -> None:
    memlite.ask(b"flush_all\r\nset plain 0 0 1\r\n1\r\n")
    ask(memlite, store(Opcode.SET, b"x\nITEM", b"1"))
    assert memlite.ask(b"stats cachedump 1 0\r\n") == b"ITEM plain [1 b; 0 s]\r\nEND\r\n"


@pytest.mark.parametrize("group", ["", "settings", "items", "slabs", "sizes"])
def test_statistics(server: RunningServer, group: str) -> None:
    ask(server, store(Opcode.SET, b"s", b"1"))
    *fields, end = ask(server, packet(Opcode.STAT, group.encode()))
    assert end == ok(Opcode.STAT)
    assert all(one.opcode == Opcode.STAT and not one.status for one in fields)
    assert [one.key.decode() for one in fields] == list(server.stats(group))


@pytest.mark.parametrize("group", ["conns", "latency", "backend"])
def test_memlites_own_statistics(memlite: RunningServer, group: str) -> None:
    *fields, _end = ask(memlite, packet(Opcode.STAT, group.encode()))
    names = {one.key.decode().rpartition(":")[2] for one in fields}
    assert names == {name.rpartition(":")[2] for name in memlite.stats(group)}


def test_counters_by_prefix(server: RunningServer) -> None:
    ask(server, packet(Opcode.STAT, b"reset") + packet(Opcode.STAT, b"detail on"))
    ask(server, store(Opcode.SET, b"p:1", b"1") + packet(Opcode.GET, b"p:1"))
    ask(server, touch(Opcode.TOUCH, b"p:2", 1) + packet(Opcode.DELETE, b"p:3"))
    dump, end = ask(server, packet(Opcode.STAT, b"detail dump"))
    ask(server, packet(Opcode.STAT, b"detail off"))
    assert (dump.key, end) == (b"detailed", ok(Opcode.STAT))
    assert dump.value == b"PREFIX p get 2 hit 1 set 1 del 1\r\nEND\r\n"


def test_a_binary_key_cannot_forge_lines_of_a_dump(memlite: RunningServer) -> None:
    ask(memlite, packet(Opcode.STAT, b"reset") + packet(Opcode.STAT, b"detail on"))
    ask(memlite, packet(Opcode.GET, b"x\r\nEND\r\nVALUE y:1") + packet(Opcode.GET, b"a b:1"))
    assert memlite.ask(b"get z:1\r\nstats detail dump\r\n") == (
        b"END\r\nPREFIX z get 1 hit 0 set 0 del 0\r\nEND\r\n"
    )
    ask(memlite, packet(Opcode.STAT, b"detail off"))


# Counters of items removed by the preceding flush are left out: memcached flushes with a resolution
# of one second.
COUNTED = (
    "cmd_get", "cmd_set", "cmd_touch", "cmd_flush", "get_hits", "get_misses", "delete_hits",
    "delete_misses", "incr_hits", "incr_misses", "decr_hits", "decr_misses", "cas_hits",
    "cas_misses", "cas_badval", "touch_hits", "touch_misses", "total_items",
)  # fmt: skip


@needs_memcached
def test_counters_equal_memcacheds(start: Start) -> None:
    """Each command changes the same counters as in memcached."""
    servers = [start(), start(kind="memcached")]
    different = []
    for number, case in enumerate(CASES):
        if case.only or memcached_version() < case.since:
            continue
        counted = []
        for one in servers:
            one.ask(packet(Opcode.FLUSH) + packet(Opcode.STAT, b"reset"))
            one.ask(case.request)
            stats = one.stats()
            counted.append({name: stats[name] for name in COUNTED})
        ours, theirs = counted
        if ours != theirs:
            wrong = {
                name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]
            }
            different.append((number, wrong))
    assert not different


# Settings


@pytest.mark.parametrize("kind", KINDS)
def test_disabled_features(start: Start, kind: str) -> None:
    server = start("-F", "-X", "-C", kind=kind)
    flushed, *rest = ask(server, packet(Opcode.FLUSH) + packet(Opcode.STAT, b"detail on"))
    assert flushed == failed(Opcode.FLUSH, Status.AUTH_ERROR, b"Auth failure.")
    if kind != "memcached" or memcached_version() >= (1, 6, 45):
        assert rest == [missed(Opcode.STAT)]
    # With -C a cas unique is ignored in storage commands, and never matches in others.
    assert ask(
        server,
        store(Opcode.SET, b"a", b"1", cas=5)
        + store(Opcode.REPLACE, b"a", b"1", cas=5)
        + packet(Opcode.GET, b"a")
        + count(Opcode.INCREMENT, b"a", 1, cas=5)
        + packet(Opcode.DELETE, b"a", cas=5),
    ) == [
        ok(Opcode.SET),
        ok(Opcode.REPLACE),
        replace(hit(Opcode.GET, b"1"), cas=0),
        failed(Opcode.INCREMENT, Status.EXISTS, EXISTS),
        failed(Opcode.DELETE, Status.EXISTS, EXISTS),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_no_memory(start: Start, kind: str) -> None:
    if kind == "memlite-file":
        pytest.skip("-m does not limit items in a file")
    server = start("-M", "-m", "8", kind=kind)
    value = b"x" * 500_000
    with server.connect() as wire:
        for index in range(100):
            wire.send(store(Opcode.SET, b"k%d" % index, value))
            head = wire.exactly(HEADER.size)
            size = HEADER.unpack(head)[6]
            (reply,) = replies(head + wire.exactly(size))
            if reply.status:
                break
        assert (reply.status, reply.value) == (
            Status.OUT_OF_MEMORY,
            b"Out of memory allocating item",
        )
        wire.send(NOOP)
        assert replies(wire.exactly(24)) == [DONE]


@pytest.mark.parametrize("kind", KINDS)
def test_the_protocol_can_be_fixed(start: Start, kind: str) -> None:
    binary = start("-B", "binary", kind=kind)
    assert ask(binary, NOOP) == [DONE]
    assert binary.ask(b"get a\r\nget a\r\nget a\r\nget a\r\n") == b""
    text = start("-B", "ascii", kind=kind)
    assert text.ask(b"get a\r\n") == b"END\r\n"
    if kind != "memcached" or memcached_version() >= (1, 6, 45):
        # Its second byte is a line feed, so its first byte is a line.
        assert text.ask(NOOP) == b"CLIENT_ERROR bad command line format\r\n"


def test_traces_with_vv(start: Start) -> None:
    server = start("-vv")
    ask(server, store(Opcode.SET, b"k\n", b"secret") + packet(Opcode.GET, b"k\n"))
    log = server.log.read_text()
    assert r"SET k\n 0 0 6 bytes" in log
    assert "GET SUCCESS" in log
    assert "secret" not in log


# Connections


def test_the_first_byte_selects_the_protocol_and_may_arrive_alone(server: RunningServer) -> None:
    with server.connect() as wire:
        wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index in range(len(SET_A)):
            wire.send(SET_A[index : index + 1])
            if index < 3:
                time.sleep(0.02)
        assert normal(wire.exactly(24)) == [stored()]


def test_pipelined_replies_are_in_order(server: RunningServer) -> None:
    with server.connect() as wire:
        for part in range(10):
            keys = [b"p%d" % (part * 200 + index) for index in range(200)]
            wire.send(b"".join(store(Opcode.SETQ, key, key * 3) for key in keys))
            wire.send(b"".join(packet(Opcode.GETKQ, key) for key in [*keys, b"none"]) + NOOP)
            for key in keys:
                size = HEADER.size + 4 + 4 * len(key)
                assert normal(wire.exactly(size)) == [hit(Opcode.GETKQ, key * 3, 0, key)]
            assert replies(wire.exactly(24)) == [DONE]


def test_a_slow_reader_gets_all_replies(server: RunningServer) -> None:
    value = bytes(range(256)) * 2000
    with server.connect() as wire:
        wire.send(store(Opcode.SETQ, b"big", value) + packet(Opcode.GET, b"big") * 60 + NOOP)
        time.sleep(0.3)
        for _ in range(60):
            assert wire.exactly(28 + len(value))[28:] == value
        assert replies(wire.exactly(24)) == [DONE]


def test_floods_of_invalid_packets_do_no_harm(server: RunningServer) -> None:
    with server.connect() as other:
        for index in range(200):
            body = packet(index, b"k" * (index % 260), bytes(index % 40), body=index * 977 % 4096)
            server.ask(body * 3)
        other.send(NOOP)
        assert replies(other.exactly(24)) == [DONE]


def test_a_value_that_is_announced_but_not_sent_takes_no_memory(memlite: RunningServer) -> None:
    before = memlite.resident_kib()
    wires = [memlite.connect() for _ in range(50)]
    for wire in wires:
        wire.send(store(Opcode.SET, b"a", b"abc", body=1_000_000))
    ask(memlite, NOOP)
    assert memlite.resident_kib() - before < 20_000
    for wire in wires:
        wire.sock.close()
