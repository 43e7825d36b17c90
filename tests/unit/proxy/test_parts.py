"""The handling of requests and replies in C, beyond what the transcripts compare."""

import asyncio
import gc
import sys
from typing import Any, cast

import pytest

from memlite.proxy.framing import NATIVE
from memlite.proxy.merge import Merger
from memlite.proxy.parts import merged
from tests.unit.proxy.transcripts import transcript

pytestmark = pytest.mark.skipif(NATIVE is None, reason="the module in C is not compiled")
native: Any = NATIVE


class Owner:
    """Stands for a node."""


class Executor:
    """Records the calls of batches and of gets of several keys."""

    strict: bool | None = None  # None: replies are not really merged

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.merger = Merger()

    def answered(self) -> None:
        self.calls.append("answered")

    def progressed(self) -> None:
        self.calls.append("progressed")

    def count_failure(self) -> None:
        self.calls.append("count_failure")

    def count_failed_shards(self, _number: int) -> None: ...

    def merged_reply(self, order: bytes, parts: list[Any], unusual: list[Any]) -> bytes:
        if self.strict is not None:
            return merged(cast("Any", self), order, parts, unusual, strict=self.strict)
        self.calls.append(tuple(unusual))
        return b"merged"


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
    executor = Executor()
    batch = native.Batch(executor, bytes([0, 1, 1, 0]))
    parts = [batch.part(2, reads=True), batch.part(2, reads=False)]
    assert batch.available() == b""
    parts[0].answer(b"one")
    parts[0].progressed()
    parts[0].answer(b"")
    parts[1].answer(b"two")
    assert [part.pieces() for part in parts] == [[b"one", b""], [b"two"]]
    assert (executor.calls, parts[0].reads, parts[1].reads) == (["progressed"], True, False)
    assert batch.available() == b"onetwo"
    parts[1].fail(b"error")
    assert (batch.reply, batch.count) == (b"error", 4)
    assert executor.calls == ["progressed", "count_failure", "answered"]
    with pytest.raises(ValueError, match="a reply must be missing"):
        parts[0].answer(b"more")


ITEM_A, ITEM_B, ITEM_C = (b"VALUE %b 0 1\r\nx\r\n" % key for key in (b"a", b"b", b"c"))


def get_of_several(executor: Any) -> Any:
    """Return a get of the keys c, a and b, of which one node has a and b."""
    found = [("one", b"get c\r\n", 1), ("other", b"get a b\r\n", 2)]
    return native.MultiGet(executor, found, bytes([0, 1, 1]))


@pytest.mark.parametrize(
    ("reply", "items"),
    [
        (b"END\r\n", b""),
        (ITEM_B + b"END\r\n", ITEM_B),
        (ITEM_A + ITEM_B + b"END\r\n", ITEM_A + ITEM_B),
        (b"VALUE a 0 5\r\nEND\r\n\r\nEND\r\n", b"VALUE a 0 5\r\nEND\r\n\r\n"),
        (ITEM_C + b"END\r\n", None),
        (ITEM_B + ITEM_A + b"END\r\n", None),
        (b"VALUE a 0 9\r\nx\r\nEND\r\n", None),
        (b"SERVER_ERROR out of memory\r\n", None),
        (b"", None),
    ],
)
def test_items_of_keys(reply: bytes, items: bytes | None) -> None:
    executor = Executor()
    whole = get_of_several(executor)
    told: list[Any] = []
    whole.answered_by_all = lambda *reply: told.append(reply)
    whole.part(1).answer(reply)
    assert (whole.reply, executor.calls, whole.count, whole.reads) == (None, [], 1, True)
    assert whole.held == len(reply if items is None else items)
    whole.part(0).answer(ITEM_C + b"END\r\n")
    expected = b"merged" if items is None else ITEM_C + items + b"END\r\n"
    assert (whole.reply, told, whole.held) == (expected, [(expected, False)], len(expected))
    assert executor.calls == (["answered"] if items is not None else [(None, reply), "answered"])


def test_a_node_that_fails() -> None:
    executor = Executor()
    whole, told = get_of_several(executor), []
    whole.answered_by_all = lambda *reply: told.append(reply)
    for index in (0, 1):
        whole.part(index).fail(b"SERVER_ERROR down\r\n")
    unusual = (b"SERVER_ERROR down\r\n",) * 2
    assert executor.calls == ["count_failure"] * 2 + [unusual, "answered"]
    assert told == [(b"merged", True)]
    with pytest.raises(IndexError):
        whole.part(0)  # they are dropped
    with pytest.raises(ValueError, match="as a whole"):
        get_of_several(executor).part(0).progressed()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("of_one", "of_other", "lenient", "if_strict"),
    [
        (ITEM_C + b"END\r\n", b"SERVER_ERROR x\r\n", ITEM_C + b"END\r\n", b"SERVER_ERROR x\r\n"),
        (b"ERROR\r\n", b"SERVER_ERROR x\r\n", b"ERROR\r\n", b"ERROR\r\n"),
        (b"ERROR\r\n", b"END\r\n", b"END\r\n", b"ERROR\r\n"),
        (ITEM_C + b"END\r\n", b"VALUE b 0 1 7\r\ny\r\nEND\r\n",
         ITEM_C + b"VALUE b 0 1 7\r\ny\r\nEND\r\n", ITEM_C + b"VALUE b 0 1 7\r\ny\r\nEND\r\n"),
        (ITEM_C + b"END\r\n", ITEM_B + ITEM_A + b"END\r\n", ITEM_C + ITEM_B + b"END\r\n",
         ITEM_C + ITEM_B + b"END\r\n"),
    ],
)  # fmt: skip
def test_unusual_replies_are_merged(
    strict: bool, of_one: bytes, of_other: bytes, lenient: bytes, if_strict: bytes
) -> None:
    executor = Executor()
    executor.strict = strict
    whole = get_of_several(executor)
    whole.part(0).answer(of_one)
    whole.part(1).answer(of_other)
    assert whole.reply == (if_strict if strict else lenient)


def test_wrong_arguments_of_parts() -> None:
    with pytest.raises(TypeError):
        native.Part()
    part = native.Batch(Executor(), b"\0").part(1, reads=True)
    for wrong in (None, "x", bytearray(b"x")):
        with pytest.raises(ValueError, match="bytes"):
            part.answer(wrong)
        with pytest.raises(ValueError, match="bytes"):
            part.fail(wrong)
    for name in ("split", "split_keys", "hand_out", "Batch", "MultiGet"):
        for arguments in [(), (1,), (1, 2, 3), (b"", [1], 0, b""), (b"", {}, {}, "x", 1, int)]:
            with pytest.raises((TypeError, ValueError)):
                getattr(native, name)(*arguments)
    for found in [1], [(1,)], [("node", b"get a\r\n", 0)], [("node", "get a", 1)]:
        with pytest.raises((TypeError, ValueError)):
            native.MultiGet(Executor(), found, b"\0")
    for index in (-1, 2):
        with pytest.raises(IndexError):
            get_of_several(Executor()).part(index)
    with pytest.raises(TypeError):
        native.Lone()
    for take in (native.Lone(Executor()).take_keys, native.Lone(Executor()).take_batch):
        with pytest.raises(TypeError):
            take("get a b")


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
