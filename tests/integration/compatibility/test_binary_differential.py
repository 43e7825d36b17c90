"""memlite and the real memcached give the same replies to random binary streams.

Only cas uniques, which no two servers share, are replaced by the order in which they first appear.

Some requests are not generated, because memlite differs deliberately: unknown commands with extras
or a key (of which memcached skips too much), VERBOSITY (which memcached does not know), and delayed
flushes (with which memcached revokes a flush less than a second before).
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memlite.protocol.packets import Opcode
from tests.support.packets import NOOP, Reply, count, packet, replies, store, touch
from tests.support.servers import RunningServer, Wire, needs_memcached, running

pytestmark = needs_memcached

EXAMPLES = 150
NO_CAS = 2**63
"""A cas unique that no item has."""


@pytest.fixture(
    scope="module",
    params=["memlite", pytest.param("memlite-near", marks=pytest.mark.slow), "memlite-file"],
)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[RunningServer, RunningServer]]:
    with contextlib.ExitStack() as stack:
        yield (
            stack.enter_context(running(request.param)),
            stack.enter_context(running("memcached")),
        )


KEYS = st.sampled_from([b"a", b"b", b"c:1", b" \r\n\0", b"\xff" * 100, b"e" * 250])
NUMBERS = st.sampled_from([0, 1, 9, 10, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
EXPTIMES = st.sampled_from([0, 0, 0, 100, 2592000, 2592001, 4000000000, 2**32 - 1])
FLAGS = st.sampled_from([0, 0, 1, 65535, 2**32 - 1])
CAS = st.sampled_from([0, 0, 0, 0, NO_CAS])
OPAQUES = st.sampled_from([0, 7, 2**32 - 1])
VALUES = st.one_of(
    NUMBERS.map(lambda number: b"%d" % number),
    # Values of white space only are not used, because memcached's incr reads beyond them.
    st.binary(max_size=40).filter(lambda value: not value or value.strip(b" \t\n\v\f\r")),
    st.sampled_from([b"", b" 7", b"12 34", b"\r\nx", b"x" * 3000, NOOP, b"7\0"]),
)

GETS = st.sampled_from([Opcode.GET, Opcode.GETQ, Opcode.GETK, Opcode.GETKQ])
STORES = st.sampled_from(
    [Opcode.SET, Opcode.SET, Opcode.SETQ, Opcode.ADD, Opcode.ADDQ, Opcode.REPLACE, Opcode.REPLACEQ]
)
JOINS = st.sampled_from([Opcode.APPEND, Opcode.APPENDQ, Opcode.PREPEND, Opcode.PREPENDQ])
COUNTS = st.sampled_from([Opcode.INCREMENT, Opcode.INCREMENTQ, Opcode.DECREMENT, Opcode.DECREMENTQ])
TOUCHING = (Opcode.TOUCH, Opcode.GAT, Opcode.GATQ, Opcode.GATK, Opcode.GATKQ)
TOUCHES = st.sampled_from(TOUCHING)
# memcached writes a shorter number into the existing item and pads it, unless a reply that has not
# been sent refers to the item. A NOOP makes it send its replies.
BEHIND_NOOP = NOOP.__add__

COMMANDS = st.one_of(
    st.builds(packet, GETS, KEYS, opaque=OPAQUES),
    st.builds(packet, GETS, KEYS, opaque=OPAQUES),
    st.builds(store, STORES, KEYS, VALUES, FLAGS, EXPTIMES, cas=CAS, opaque=OPAQUES),
    st.builds(store, STORES, KEYS, VALUES, FLAGS, EXPTIMES, cas=CAS, opaque=OPAQUES),
    st.builds(packet, JOINS, KEYS, st.just(b""), VALUES, cas=CAS, opaque=OPAQUES),
    st.builds(packet, st.sampled_from([Opcode.DELETE, Opcode.DELETEQ]), KEYS, cas=CAS),
    st.builds(count, COUNTS, KEYS, NUMBERS, NUMBERS, EXPTIMES, cas=CAS).map(BEHIND_NOOP),
    st.builds(touch, TOUCHES, KEYS, EXPTIMES, opaque=OPAQUES),
    st.sampled_from(
        [
            NOOP,
            packet(Opcode.FLUSH),
            packet(Opcode.FLUSHQ),
            packet(Opcode.STAT, b"reset"),
            packet(Opcode.STAT, b"nonsense"),
            packet(Opcode.STAT, b"sizes"),
            packet(Opcode.STAT, b"detail off"),
            packet(Opcode.SASL_LIST_MECHS),
            packet(Opcode.SASL_AUTH, b"PLAIN", value=b"\0a\0b"),
            packet(0x7F, value=b"x" * 30),
            store(Opcode.SET, b"a", b"y" * 1048577),
            store(Opcode.ADDQ, b"b", b"y" * 1048577),
            packet(Opcode.APPEND, b"b", value=b"y" * 1048577),
        ]
    ),
)  # fmt: skip
ENDS = st.sampled_from(
    [
        b"",
        packet(Opcode.QUIT),
        packet(Opcode.QUITQ),
        packet(Opcode.GET),
        packet(Opcode.GET, b"k" * 251),
        packet(Opcode.DELETE, b"a", value=b"x"),
        store(Opcode.SET, b"", b"x"),
        packet(Opcode.GET, b"abc", body=2),
        packet(Opcode.INCREMENT, b"a", bytes(4)),
        packet(Opcode.TOUCH, b"a"),
        packet(Opcode.NOOP, b"a"),
    ]
)
SETTINGS = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)


@SETTINGS
@given(st.lists(COMMANDS, min_size=1, max_size=30), ENDS)
def test_streams_get_the_same_replies(
    pair: tuple[RunningServer, RunningServer], commands: list[bytes], end: bytes
) -> None:
    """Each stream is sent at once, up to a request that ends the connection."""
    found = []
    for server in pair:
        server.ask(packet(Opcode.FLUSH))
        answers = replies(server.ask(b"".join(commands) + end))
        # On backends with versions, a new expiry creates a new version; in memcached it does not.
        found.append(normal(answers, any_cas=pair[0].kind != "memlite"))
    assert found[0] == found[1]


@settings(SETTINGS, max_examples=EXAMPLES // 2)
@given(
    st.lists(
        st.tuples(
            COMMANDS,
            st.booleans(),
            st.sampled_from(
                [
                    lambda cas: store(Opcode.SET, b"a", b"2", cas=cas),
                    lambda cas: store(Opcode.ADD, b"a", b"2", cas=cas),
                    lambda cas: store(Opcode.REPLACEQ, b"a", b"2", cas=cas),
                    lambda cas: packet(Opcode.APPEND, b"a", value=b"2", cas=cas),
                    lambda cas: packet(Opcode.DELETE, b"a", cas=cas),
                    lambda cas: count(Opcode.INCREMENT, b"a", 1, 1, cas=cas),
                ]
            ),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_streams_with_valid_cas_uniques_get_the_same_replies(
    pair: tuple[RunningServer, RunningServer],
    steps: list[tuple[bytes, bool, Callable[[int], bytes]]],
) -> None:
    """Some commands use a cas unique that was just read, or read before another change."""
    touching = () if pair[0].kind == "memlite" else TOUCHING
    for server in pair:
        server.ask(packet(Opcode.FLUSH))
    with pair[0].connect() as ours, pair[1].connect() as theirs:
        remembered = [NO_CAS, NO_CAS]
        for command, afresh, conditional in steps:
            if command[1] in touching:
                continue  # see test_streams_get_the_same_replies
            found = []
            for index, wire in enumerate((ours, theirs)):
                if afresh:
                    (shown, _) = converse(wire, packet(Opcode.GET, b"a"))
                    remembered[index] = shown.cas or NO_CAS
                answers = converse(wire, command)
                answers += converse(wire, conditional(remembered[index]))
                found.append(normal(answers))
            assert found[0] == found[1]


def converse(wire: Wire, request: bytes) -> list[Reply]:
    """Send a request followed by a NOOP, and return the replies to both."""
    mark = packet(Opcode.NOOP, opaque=0x12345678)
    wire.send(request + mark)
    return replies(wire.until(b"\x81" + mark[1:]))


def normal(answers: list[Reply], *, any_cas: bool = False) -> list[Reply]:
    order: dict[int, int] = {0: 0}
    return [
        replace(one, cas=bool(one.cas) if any_cas else order.setdefault(one.cas, len(order)))
        for one in answers
    ]
