"""The handling of requests and replies in C, beyond what the transcripts compare."""

import asyncio
import gc
import sys
from typing import Any

import pytest

from memlite.proxy.framing import NATIVE
from tests.unit.proxy.transcripts import transcript

pytestmark = pytest.mark.skipif(NATIVE is None, reason="the module in C is not compiled")
native: Any = NATIVE


class Owner:
    """Stands for a node."""


class Whole:
    """Records the calls of its parts."""

    def __init__(self) -> None:
        self.done = self.failures = 0
        self.odd: list[tuple[int, bytes, bool]] = []

    def part_done(self) -> None:
        self.done += 1

    def count_failures(self, number: int) -> None:
        self.failures += number

    def take_reply(self, index: int, reply: bytes, failed: bool) -> None:
        self.odd.append((index, reply, failed))


def split(data: bytes, most: int = 64, longest: int = 1000) -> Any:
    """Return the requests as split among the nodes of the keys a, b and c."""
    owners = [Owner(), Owner()]
    keys = {b"a": owners[0], b"b": owners[1], b"c": owners[0], b"d": object()}
    lines = {b"get %b\r\n" % key: owner for key, owner in keys.items()}
    found = native.split(data, lines, keys, most, longest, Owner)
    if found is None:
        return None
    shares, order, end, reads = found
    return [(request, count) for _, request, count in shares], list(order), end, reads


A, B, C = (b"get %b\r\n" % key for key in (b"a", b"b", b"c"))


def test_requests_by_their_nodes() -> None:
    assert split(A + B + C) == ([(A + C, 2), (B, 1)], [0, 1, 0], 21, True)
    assert split(A + B + C, most=2) == ([(A, 1), (B, 1)], [0, 1], 14, True)
    store = b"set b 1 2 3\r\nxyz\r\n"
    assert split(A + store) == ([(A, 1), (store, 1)], [0, 1], 7 + len(store), False)
    assert split(A + B + b"get d\r\n")[2] == 14  # another kind of node
    assert split(A + B + b"get x\r\n")[2] == 14  # not known
    assert split(A + A + b"get a")[2] == 14


@pytest.mark.parametrize(
    "data",
    [
        b"", A, b"get", b"get x\r\n" + A, b"\r\n" * 9, b"g", b"set", b"set \r\n", A[:-1] + b" " + A,
        A + b"set a 1 2 3\r\nxy\r\n", A + b"set a 1 2 03\r\nxyz\r\n", A + b"set a 1 2 3\r\nxyzw\r",
        A + b"set a 1 2 3 noreply\r\nxyz\r\n", A + b"set a 1 2\r\n", A + b"set a 1 2 -3\r\nxyz\r\n",
        A + b"set a 1 2 1001\r\n" + b"x" * 1001 + b"\r\n", A + b"set  a 1 3\r\nxyz\r\n",
        A + b"set a 1 2 9999\r\n", A + b"set a +1 2 3\r\nxyz\r\n",
    ],
)  # fmt: skip
def test_anything_else_is_left(data: bytes) -> None:
    assert split(data) is None


def test_keys_by_their_nodes() -> None:
    one, other = Owner(), Owner()
    keys = {b"a": one, b"bb": other, b"c": one}
    found, order = native.split_keys(b"get a bb c a\r\n", keys, Owner)
    assert found == [(one, b"get a c a\r\n", 3), (other, b"get bb\r\n", 1)]
    assert list(order) == [0, 1, 0, 0]
    for data in (
        b"get a x\r\n",
        b"get a  c\r\n",
        b"get a \r\n",
        b"get \r\n",
        b"get a c\n",
        b"",
        b"get ",
    ):
        assert native.split_keys(data, keys, Owner) is None
    assert native.split_keys(b"get a bb\r\n", keys, object) is None


def test_more_nodes_than_are_distinguished() -> None:
    keys = {b"%d" % number: Owner() for number in range(65)}
    assert native.split_keys(b"get " + b" ".join(keys) + b"\r\n", keys, Owner) is None
    assert native.split_keys(b"get " + b" ".join([*keys][:64]) + b"\r\n", keys, Owner) is not None


def test_replies_are_joined_as_far_as_they_are_there() -> None:
    whole = Whole()
    parts = [native.Part(whole, 0, 2, True), native.Part(whole, 1, 2, False)]
    order = bytes([0, 1, 1, 0])
    assert native.join(order, parts, 0, b"") == (b"", 0)
    parts[0].answer(b"one")
    parts[0].answer(b"")
    parts[1].answer(b"two")
    assert (whole.done, parts[0].reads, parts[1].reads) == (1, True, False)
    assert native.join(order, parts, 0, b"") == (b"onetwo", 2)
    parts[1].fail(b"error")
    assert (whole.done, whole.failures) == (2, 1)
    assert native.join(order, parts, 2, b"!") == (b"error!", 4)
    assert [part.pieces() for part in parts] == [[b"one", b""], [b"two", b"error"]]
    with pytest.raises(ValueError, match="a reply must be missing"):
        parts[0].answer(b"more")


@pytest.mark.parametrize(
    ("reply", "items"),
    [
        (b"END\r\n", [b"", b""]),
        (b"VALUE b 0 1\r\nx\r\nEND\r\n", [b"", b"VALUE b 0 1\r\nx\r\n"]),
        (b"VALUE a 0 5\r\nEND\r\n\r\nEND\r\n", [b"VALUE a 0 5\r\nEND\r\n\r\n", b""]),
        (b"VALUE c 0 1\r\nx\r\nEND\r\n", None),
        (b"VALUE b 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n", None),
        (b"VALUE a 0 9\r\nx\r\nEND\r\n", None),
        (b"SERVER_ERROR out of memory\r\n", None),
        (b"", None),
    ],
)
def test_items_of_keys(reply: bytes, items: list[bytes] | None) -> None:
    whole = Whole()
    part = native.Part(whole, 7, 2, True, b"get a b\r\n")
    part.answer(reply)
    if items is None:
        assert (whole.odd, whole.done) == ([(7, reply, False)], 0)
    else:
        assert (part.pieces(), whole.done) == (items, 1)


def test_wrong_arguments_of_parts() -> None:
    for arguments in [
        (),
        (1, -1, 1, 1),
        (1, 256, 1, 1),
        (1, 0, 0, 1),
        (1, 0, 1, 1, "x"),
        (1, 0, 2**40, 1),
    ]:
        with pytest.raises((TypeError, ValueError)):
            native.Part(*arguments)
    part = native.Part(Whole(), 0, 1, True)
    for wrong in (None, "x", bytearray(b"x")):
        with pytest.raises(ValueError, match="bytes"):
            part.answer(wrong)
    for name in ("split", "split_keys", "join", "hand_out"):
        for arguments in [(), (1,), (1, 2, 3), (b"", [1], 0, b""), (b"", {}, {}, "x", 1, int)]:
            with pytest.raises((TypeError, ValueError)):
                getattr(native, name)(*arguments)
    with pytest.raises(TypeError):
        native.Lone()


async def test_nothing_is_kept() -> None:
    for seed in range(10):
        transcript(seed)
    gc.collect()
    before = sys.getallocatedblocks()
    for seed in range(10):
        transcript(seed)
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000  # a transcript has thousands of requests


def test_transcripts() -> None:
    async def run() -> list[str]:
        return [transcript(seed) for seed in range(30)]

    assert len(set(asyncio.run(run()))) == 30
