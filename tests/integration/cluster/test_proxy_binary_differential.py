"""Binary clients get the same bytes through a proxy with one node as from a server directly.

The known differences are left out: groups of statistics, which concern a single node, and Touch of
an item that a meta command has made stale, which wins the right to recache it.
"""

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.protocol.packets import Opcode
from tests.integration.compatibility import test_binary_differential as streams
from tests.integration.protocol import test_binary as single
from tests.support.differential import PEER_OPTIONS, Batch, Comparison, Conversation, Generator
from tests.support.packets import count, packet, replies, store
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, memcached_version, running

CONVERSATIONS = 60
NOT_COMPARED = (b"cache_memlimit", b"stats")  # malformed ones included
CASES = [case for case in single.CASES if bytes((0x80, Opcode.STAT)) not in case.request]

Pair = tuple[RunningServer, RunningServer]


@pytest.fixture(
    scope="module",
    params=[
        "memlite",
        pytest.param(
            "memcached",
            marks=pytest.mark.skipif(
                memcached_version() < (1, 6, 45), reason="no memcached 1.6.45 or later"
            ),
        ),
    ],
)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A server, and a proxy in front of another server."""
    options = PEER_OPTIONS if request.param == "memcached" else ()
    with contextlib.ExitStack() as stack:
        direct = stack.enter_context(running(request.param, *options))
        node = stack.enter_context(running(request.param, *options))
        yield direct, stack.enter_context(proxy([node]))


def compared(conversation: Conversation) -> Conversation:
    """Return a conversation without the requests that are not compared."""
    batches = [
        Batch(
            batch.binary,
            tuple(
                unit
                for unit in batch.units
                if not unit.data.lstrip().startswith(NOT_COMPARED)
                and not (batch.binary and unit.data[1] in (Opcode.STAT, Opcode.TOUCH))
            ),
            batch.cuts,
            batch.last,
        )
        for batch in conversation
    ]
    return [batch for batch in batches if batch.units or batch.last]


@pytest.mark.parametrize("part", range(2))
def test_conversations_of_text_and_binary_clients(pair: Pair, part: int) -> None:
    comparison = Comparison(pair)
    for seed in range(part * CONVERSATIONS, (part + 1) * CONVERSATIONS):
        conversation = compared(Generator(random.Random(seed)).conversation())
        found = comparison.difference(conversation) if conversation else None
        assert found is None, f"seed {seed}, the server first:\n{comparison.shrink(found)}"


@streams.SETTINGS
@given(
    st.lists(
        streams.COMMANDS.filter(lambda command: command[1] != Opcode.STAT), min_size=1, max_size=30
    ),
    streams.ENDS,
)
def test_streams(pair: Pair, commands: list[bytes], end: bytes) -> None:
    found = []
    for server in pair:
        server.ask(packet(Opcode.FLUSH))
        found.append(streams.normal(replies(server.ask(b"".join(commands) + end))))
    assert found[0] == found[1]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_single_cases(pair: Pair, case: single.Case) -> None:
    direct, front = pair
    if case.only and case.only != direct.kind:
        pytest.skip("a deliberate difference")
    front.ask(packet(Opcode.FLUSH))
    assert single.normal(front.ask(case.request)) == case.replies


@pytest.mark.parametrize("options", [("-C",), ("-F",), ("-M", "-m", "8")], ids=str)
def test_nodes_with_other_settings(options: tuple[str, ...]) -> None:
    value = bytes(500_000 if "-M" in options else 500)
    cas = 0 if "-C" in options else 5  # clients of such a node never see a cas unique
    requests = [
        *(store(Opcode.SET, b"k%d" % number, value) for number in range(30)),
        packet(Opcode.GETK, b"k1"),
        store(Opcode.ADD, b"a", b"1"),
        store(Opcode.SET, b"a", b"2", cas=cas),
        packet(Opcode.GET, b"a"),
        count(Opcode.INCREMENT, b"a", 1),
        packet(Opcode.DELETE, b"a", cas=cas),
        count(Opcode.INCREMENT, b"b", 1, 1),
        packet(Opcode.FLUSH),
    ]
    with (
        running("memlite", *options) as direct,
        running("memlite", *options) as node,
        proxy([node]) as front,
    ):
        found = [
            [replace(one, cas=bool(one.cas)) for one in replies(server.ask(b"".join(requests)))]
            for server in (direct, front)
        ]
    assert found[0] == found[1]
