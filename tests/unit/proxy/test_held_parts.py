"""Parts of replies that wait for other parts are bounded, however the request was split."""

from collections.abc import Callable
from typing import cast

import pytest

from memlite.proxy.changes import Changes
from memlite.proxy.held_parts import TOO_MUCH, HeldParts
from memlite.proxy.node import Node, Receiver
from memlite.proxy.replicas import ReplicaSet
from memlite.proxy.resend import send_again
from memlite.proxy.whole_gets import WholeGets
from tests.unit.proxy.copies import Client

ITEM = b"VALUE %b 0 10\r\n0123456789\r\n"
END = b"END\r\n"


class Target:
    """A node that answers when the test says so."""

    down = False

    def __init__(self) -> None:
        self.taken: list[tuple[bytes, Receiver]] = []

    def send(self, request: bytes, receiver: Receiver) -> None:
        self.taken.append((request, receiver))

    def answer(self, *found: bytes) -> bytes:
        """Answer the first request with the items of these keys."""
        request, receiver = self.taken.pop(0)
        receiver.answer(b"".join(ITEM % key for key in found) + END)
        return request


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldParts:
    """Return held parts with room for two items."""
    held = HeldParts(65)
    for module in ("resend", "replicas", "whole_gets"):
        monkeypatch.setattr(f"memlite.proxy.{module}.PARTS", held)
    return held


def test_one_part_has_room_however_large() -> None:
    held = HeldParts(10)
    assert held.hold(100)
    assert not held.hold(1)
    held.release(100)
    assert held.hold(4)
    assert held.hold(6)
    assert not held.hold(1)
    assert held.size == 10


def test_parts_of_a_get_split_by_keys_are_held(held: HeldParts) -> None:
    targets = {key: Target() for key in (b"a", b"b", b"c", b"d")}
    clients = [Client(), Client()]
    for client in clients:
        send_again(b"get a b c d\r\n", client, targets.__getitem__)
    targets[b"a"].answer(b"a")
    targets[b"b"].answer(b"b")
    size = len(ITEM % b"a" + END)
    assert held.size == 2 * size
    targets[b"a"].answer(b"a")  # for the second client
    targets[b"b"].answer(b"b")
    assert held.size == 2 * size
    targets[b"c"].answer()
    assert held.size == 0  # the first client holds too much as well
    targets[b"c"].answer(b"c")
    targets[b"d"].answer(b"d")
    targets[b"d"].answer(b"d")
    assert [client.replies for client in clients] == [[TOO_MUCH]] * 2
    assert held.size == 0


def test_the_last_part_is_not_held(held: HeldParts) -> None:
    targets = {key: Target() for key in (b"a", b"b", b"c")}
    client = Client()
    send_again(b"get c a b\r\n", client, targets.__getitem__)
    for key in (b"a", b"b", b"c"):
        targets[key].answer(key)
    assert client.replies == [b"".join(ITEM % key for key in (b"c", b"a", b"b")) + END]
    assert held.size == 0


def test_an_error_is_the_reply_and_nothing_is_held_any_more(held: HeldParts) -> None:
    targets = {key: Target() for key in (b"a", b"b", b"c")}
    client = Client()
    send_again(b"get a b c\r\n", client, targets.__getitem__)
    targets[b"a"].answer(b"a")
    assert held.size > 0
    targets[b"b"].taken.pop()[1].fail(b"SERVER_ERROR x\r\n")
    assert held.size == 0
    targets[b"c"].answer(b"c")
    assert client.replies == [b"SERVER_ERROR x\r\n"]
    assert held.size == 0


def _sets(nodes: list[Target]) -> tuple[Changes, Callable[[bytes], ReplicaSet]]:
    changes = Changes(30, over_after=3)
    of = cast("list[Node]", nodes)
    found = {
        key: ReplicaSet(of[at], of[1 - at : 2 - at], changes, "all", spreads=True)
        for at, key in enumerate((b"a", b"b"))
    }
    return changes, found.__getitem__


def test_items_that_a_replica_lacks_are_read_from_the_primary_even_without_room(
    held: HeldParts,
) -> None:
    nodes = [Target(), Target()]
    _, of = _sets(nodes)
    client = Client()
    of(b"a").send(b"get a x\r\n", client)  # begins with the replica
    assert not nodes[0].taken
    nodes[1].answer(b"a")
    assert nodes[0].answer(b"x") == b"get x\r\n"
    assert held.size == 0
    of(b"a").send(b"get a x\r\n", client)
    assert nodes[0].answer(b"a", b"x") == b"get a x\r\n"
    nodes[1].taken.clear()  # leases
    held.hold(60)
    of(b"a").send(b"get a x\r\n", client)
    nodes[1].answer(b"a")
    assert nodes[0].answer(b"a", b"x") == b"get a x\r\n"
    assert client.replies == [ITEM % b"a" + ITEM % b"x" + END] * 3
    assert held.size == 60


@pytest.mark.parametrize("room", [True, False])
def test_a_get_that_one_node_answers(held: HeldParts, room: bool) -> None:
    nodes = [Target(), Target()]
    changes, of = _sets(nodes)
    gets = WholeGets(
        cast("list[Node]", nodes), of, changes, strict=False, count_failed=lambda _: None
    )
    client = Client()
    gets.send(b"get a b\r\n", client)
    if not room:
        held.hold(60)
    nodes[1].answer(b"b")
    assert held.size == (len(ITEM % b"b") if room else 60)
    assert nodes[0].answer(b"a") == b"get a\r\n"
    assert client.replies == [ITEM % b"a" + ITEM % b"b" + END if room else TOO_MUCH]
    assert held.size == (0 if room else 60)
