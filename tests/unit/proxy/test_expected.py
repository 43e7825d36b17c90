"""Whether replies match their requests, in C as in Python."""

import asyncio
from random import Random
from typing import Any, cast

import pytest

from memlite.client import ReplyError, ReplyScanner
from memlite.proxy.expected import REPLIES, AskedInPython, fits, shown
from memlite.proxy.framing import NATIVE
from memlite.proxy.parts import JoinedBatch, JoinedMultiGet
from tests.unit.proxy.test_node import Outcome, served

REQUESTS = [
    b"get k\r\n", b"get k l m\r\n", b"gets k\r\n", b"gat 9 k\r\n", b"gats 9 k l\r\n",
    b"set k 0 0 1\r\nx\r\n", b"add k 0 0 1\r\nx\r\n", b"cas k 0 0 1 7\r\nx\r\n",
    b"replace k 0 0 1\r\nx\r\n", b"append k 0 0 1\r\nx\r\n", b"prepend k 0 0 1\r\nx\r\n",
    b"delete k\r\n", b"incr k 1\r\n", b"decr k 1\r\n", b"touch k 9\r\n", b"mg k v k Oabc\r\n",
    b"ms k 1 T9\r\nx\r\n", b"md k q\r\n", b"ma k N0 J1\r\n", b"me k\r\n", b"mg aw== b k v\r\n",
    b"flush_all\r\n", b"version\r\n", b"get  k \n",
]  # fmt: skip
ITEM = b"VALUE k 0 1\r\nx\r\n"
ERRORS = [
    b"ERROR\r\n", b"ERROR Unhandled storage type.\r\n", b"CLIENT_ERROR bad data chunk\r\n",
    b"SERVER_ERROR out of memory storing object\r\n", b"SERVER_ERROR: out of memory\r\n",
]  # fmt: skip
RIGHT: dict[bytes, list[bytes]] = {
    b"get": [b"END\r\n", ITEM + b"END\r\n", ITEM + ERRORS[3], b"VALUE k 0 1 7\r\nx\r\nEND\r\n"],
    b"gets": [b"END\r\n", b"VALUE k 4294967295 0 18446744073709551615\r\n\r\nEND\r\n"],
    b"gat": [b"END\r\n", ITEM + b"END\r\n"],
    b"gats": [b"END\r\n", b"VALUE k 0 5 1\r\nEND\r\n\r\nEND\r\n"],
    b"delete": [b"DELETED\r\n", b"NOT_FOUND\r\n"],
    b"incr": [b"0\r\n", b"18446744073709551615\r\n", b"NOT_FOUND\r\n"],
    b"decr": [b"7\r\n", b"9  \r\n", b"NOT_FOUND\r\n"],
    b"touch": [b"TOUCHED\r\n", b"NOT_FOUND\r\n"],
    b"mg": [b"EN\r\n", b"HD\r\n", b"OK\r\n", b"VA 1 kk Oabc\r\nx\r\n", b"HD f1 t-1 W\r\n"],
    b"ms": [b"HD\r\n", b"NS\r\n", b"EX\r\n", b"NF\r\n", b"HD c5\r\n", b"OK\r\n"],
    b"md": [b"HD\r\n", b"NF\r\n", b"EX\r\n"],
    b"ma": [b"HD\r\n", b"VA 1\r\n5\r\n", b"NF\r\n", b"NS\r\n", b"EX\r\n"],
    b"me": [b"EN\r\n", b"ME k exp=-1 la=0 cas=1 fetch=no cls=1 size=60\r\n"],
    b"flush_all": [b"OK\r\n"],
    b"version": [b"VERSION 1.4.39\r\n", b"VERSION 1.6.45\r\n"],
}
STORED = [b"STORED\r\n", b"NOT_STORED\r\n", b"EXISTS\r\n", b"NOT_FOUND\r\n"]
RUBBISH = [
    b"\x00\xff rubbish\r\n", b"HTTP/1.1 400 Bad Request\r\n", b"\r\n", b" \r\n", b"STORED \r\n",
    b"STORED x\r\n", b"stored\r\n", b"-1\r\n", b"1 2\r\n", b"1x\r\n",
    b"VALUE other 0 1\r\nx\r\nEND\r\n",
    ITEM * 2 + b"END\r\n", ITEM + b"STORED\r\n", ITEM, b"VALUE k 1\r\nx\r\nEND\r\n",
    b"VALUE k x 1\r\nx\r\nEND\r\n", b"VALUE k 0 1 x\r\nx\r\nEND\r\n",
    b"VALUE kk 0 1\r\nx\r\nEND\r\n",
    b"VALUE  0 1\r\nx\r\nEND\r\n", b"VA 1 kother\r\nx\r\n", b"HD Oother\r\n", b"HDx\r\n",
    b"END x\r\n",
    b"ERRORS\r\n", b"STAT a 1\r\n", b"MN\r\n", b"DELETED now\r\n",
]  # fmt: skip


def right(request: bytes) -> list[bytes]:
    name = request.split()[0]
    return RIGHT.get(name, STORED) + ERRORS


def fits_in_c(request: bytes, reply: bytes) -> bool:
    asked = NATIVE.Asked()
    asked.extend([request])
    return bool(asked.take(reply, False))


BOTH = [fits] if NATIVE is None else [fits, fits_in_c]


@pytest.mark.parametrize("function", BOTH)
@pytest.mark.parametrize("request_", REQUESTS)
def test_right_replies(function: Any, request_: bytes) -> None:
    for reply in right(request_):
        if request_.startswith(b"mg aw== b"):
            reply = reply.replace(b" kk Oabc", b" kaw== b")
        assert function(request_, reply), reply


KINDS = {
    ITEM + b"END\r\n": b"get gat",
    b"END\r\n": b"get gets gat gats",
    b"STORED\r\n": b"set add replace append prepend cas",
    b"DELETED\r\n": b"delete",
    b"TOUCHED\r\n": b"touch",
    b"7\r\n": b"incr decr",
    b"HD\r\n": b"mg ms md ma",
    b"VA 1\r\nx\r\n": b"mg ma",
    b"EN\r\n": b"mg me",
    b"OK\r\n": b"flush_all mg ms md ma",
    b"VERSION 1.6.45\r\n": b"version",
}
"""Replies, and the commands that may have them."""


@pytest.mark.parametrize("function", BOTH)
@pytest.mark.parametrize("request_", REQUESTS)
def test_wrong_replies(function: Any, request_: bytes) -> None:
    wrong = [reply for reply, names in KINDS.items() if request_.split()[0] not in names.split()]
    for reply in wrong + RUBBISH:
        in_base64 = b" b " in request_ and b" kother" in reply  # keys in base64 are not compared
        assert function(request_, reply) is in_base64, reply
    assert len(wrong) < len(KINDS)


def test_a_key_may_be_in_base64_on_either_side() -> None:
    """A node answers in the form in which the item was stored, whatever the request uses."""
    for function in BOTH:
        assert function(b"mg foo k v\r\n", b"VA 1 kZm9v b\r\nx\r\n")
        assert function(b"mg Zm9v k v b\r\n", b"VA 1 kfoo\r\nx\r\n")
        assert not function(b"mg foo k v\r\n", b"VA 1 kZm9v\r\nx\r\n")


def test_keys_in_another_order_and_keys_that_were_not_requested() -> None:
    def item(key: bytes) -> bytes:
        return b"VALUE %b 0 1\r\nx\r\n" % key

    for function in BOTH:
        for keys, fit in [
            (b"k l m", True), (b"l", True), (b"k m", True), (b"l k", False), (b"k k", False),
            (b"k l m m", False), (b"k n", False), (b"k l n", False), (b"m l", False),
        ]:  # fmt: skip
            reply = b"".join(map(item, keys.split())) + b"END\r\n"
            assert function(b"get k l m\r\n", reply) is fit, keys
            assert function(b"gat 0 k l m\r\n", reply) is fit, keys
        assert function(b"get k k\r\n", item(b"k") * 2 + b"END\r\n")


@pytest.mark.skipif(NATIVE is None, reason="the module in C is not compiled")
def test_c_and_python_agree_on_any_bytes() -> None:
    rng = Random(7)
    pieces = [
        b"VALUE ", b"k ", b"0 ", b"1", b"\r\n", b"x\r\n", b"END\r\n", b"VA ", b"HD", b" kk",
        b" b", b" Oabc",
        b"STORED", b"ERROR", b"SERVER_ERROR ", b":", b" ", b"7", b"OK", b"NOT_FOUND", b"l ", b"9",
    ]  # fmt: skip
    answers = []
    for _ in range(20_000):
        request = rng.choice(REQUESTS)
        if rng.random() < 0.3:
            reply = rng.choice(right(request) + RUBBISH)
            at = rng.randrange(len(reply))
            reply = reply[:at] + rng.choice(pieces) + reply[at:]
        else:
            reply = b"".join(rng.choices(pieces, k=rng.randint(1, 8))) + b"\r\n"
        found = fits(request, reply) if _whole(reply) else None
        answers.append(found)
        assert found is None or found == fits_in_c(request, reply), (request, reply)
    assert answers.count(True) > 500 < answers.count(False)


def _whole(reply: bytes) -> bool:
    """Return whether values have the announced length, as in all replies that are checked."""
    try:
        return ReplyScanner().split(reply) == [reply]
    except ReplyError:
        return False


ASKED = [AskedInPython] if NATIVE is None else [AskedInPython, NATIVE.Asked]


@pytest.mark.parametrize("kind", ASKED)
def test_requests_are_matched_with_replies_in_order(kind: Any) -> None:
    asked = kind()
    long = b"set a 0 0 5000\r\n" + b"get x\r\n".ljust(5000, b"z") + b"\r\n"
    for _ in range(50):
        asked.extend([b"get a\r\nset b 0 0 7\r\nget c\r\n\r\nget d\r\n", b"get e\r\n", long])
        asked.extend([long + b"get f\r\n", b"x" * 5000, b"get g\r\n" * 2000])
    for _ in range(50):
        assert asked.take(b"VALUE a 0 1\r\nx\r\nEND\r\n", True)
        assert asked.take(b"STORED\r\n", True)
        assert asked.take(b"VALUE d 0 1\r\nx\r\nEND\r\n", False)
        assert asked.take(b"VALUE e 0 1\r\nx\r\nEND\r\n", False)
        assert asked.take(b"NOT_STORED\r\n", False)
        assert asked.take(b"STORED\r\n", True)
        assert asked.take(b"VALUE f 0 1\r\nx\r\nEND\r\n", False)
        assert asked.take(b"whatever\r\n", False)
        for left in range(1999, -1, -1):
            assert asked.take(b"VALUE g 0 1\r\nx\r\nEND\r\n", left > 0)
    asked.extend([b"get a\r\n", b"get b\r\n", b"get c\r\n"])
    asked.skip()
    assert not asked.take(b"VALUE a 0 1\r\nx\r\nEND\r\n", False)
    asked.clear()
    assert asked.take(b"anything\r\n", False)  # no request is known


def test_values_of_long_requests_are_not_kept() -> None:
    asked = AskedInPython()
    asked.extend([b"set a 0 0 5000\r\n" + b"z" * 5000 + b"\r\n"])
    assert asked._entries == type(asked._entries)([(b"set a 0 0 5000\r\n",)])


def test_unexpected_replies_are_shown_short_and_printable() -> None:
    assert shown(b"\x00\xff x\r\n") == r"'\x00\xff x'"
    assert shown(b"A" * 100_000) == "'" + "A" * 40 + "'..."
    assert shown(b"VALUE k 0 6\r\nsecret\r\nEND\r\n") == "'VALUE k 0 6'"


def test_wrong_arguments() -> None:
    if NATIVE is None:
        pytest.skip("the module in C is not compiled")
    asked = NATIVE.Asked()
    for wrong in ((), [1], b"x", None):
        with pytest.raises(TypeError):
            asked.extend(wrong)
    with pytest.raises(TypeError):
        asked.take(b"x")
    for table in (None, {b"x": [b"y"]}, {b"x": (1,)}, {b"x": (b"",)}):
        with pytest.raises(TypeError):
            NATIVE.expect(table)
    assert NATIVE.expect(REPLIES) is None


def error(reply: bytes) -> bytes:
    return f"SERVER_ERROR node 127.0.0.1:1: unexpected reply {shown(reply)}\r\n".encode()


WRONG = [
    (b"get k\r\n", b"VALUE other 0 1\r\nx\r\nEND\r\n"), (b"get k\r\n", b"STORED\r\n"),
    (b"get k\r\n", ITEM * 2 + b"END\r\n"), (b"set k 0 0 1\r\nx\r\n", b"END\r\n"),
    (b"set k 0 0 1\r\nx\r\n", ITEM + b"END\r\n"), (b"delete k\r\n", b"7\r\n"),
    (b"incr k 1\r\n", b"STORED\r\n"), (b"touch k 0\r\n", b"DELETED\r\n"),
    (b"mg k v\r\n", b"END\r\n"), (b"get k\r\n", b"VA 1\r\nx\r\n"), (b"get k\r\n", b"rubbish\r\n"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "reply"), WRONG)
@pytest.mark.parametrize("size", [1, 10_000])
async def test_no_client_gets_anything_after_an_unexpected_reply(
    request_: bytes, reply: bytes, size: int
) -> None:
    node, _ = served()
    link = cast("Any", node._link)
    before, wrong, after = outcomes = [Outcome() for _ in range(3)]
    node.send(b"get a\r\n", before)
    node.send(request_, wrong)
    node.send(b"get b\r\n", after)
    await asyncio.sleep(0)
    data = b"VALUE a 0 1\r\nx\r\nEND\r\n" + reply + b"VALUE b 0 1\r\nx\r\nEND\r\n"
    for at in range(0, len(data), size):
        link.data_received(data[at : at + size])
    assert before.replies == [b"VALUE a 0 1\r\nx\r\nEND\r\n"]
    assert wrong.replies == after.replies == [error(reply)]
    assert (node.pending, node.failed, node.down) == (0, 2, True)
    assert all(len(outcome.replies) == 1 for outcome in outcomes)


async def test_the_surplus_reply_is_the_unexpected_one() -> None:
    node, _ = served()
    link, outcome = cast("Any", node._link), Outcome()
    node.send(b"set k 0 0 1\r\nx\r\n", outcome)
    await asyncio.sleep(0)
    link.data_received(b"STORED\r\nSTORED\r\n")
    assert outcome.replies == [b"STORED\r\n"]
    assert node.error == "unexpected reply 'STORED'"


class _Executor:
    def __init__(self) -> None:
        self.failures = 0

    def answered(self) -> None: ...

    def progressed(self) -> None: ...

    def count_failure(self) -> None:
        self.failures += 1

    def merged_reply(self, _order: bytes, _parts: list[Any], unusual: list[bytes]) -> bytes:
        return unusual[0]


@pytest.mark.parametrize("length", [1, 2, 5, 6, 7, 8, 9, 15, 16, 17, 250])
async def test_keys_of_any_length_are_compared(length: int) -> None:
    for at in {0, length // 2, length - 1}:
        key = b"k" * length
        other = key[:at] + b"x" + key[at + 1 :]
        for wrong in (other, key + b"k", key[:-1] or b"x"):
            node, _ = served()
            link, outcomes = cast("Any", node._link), [Outcome(), Outcome()]
            for outcome in outcomes:
                node.send(b"get %b\r\n" % key, outcome)
            await asyncio.sleep(0)
            right = b"VALUE %b 0 1\r\nx\r\nEND\r\n" % key
            link.data_received(right + right.replace(key, wrong))
            assert outcomes[0].replies == [right]
            assert b"unexpected reply" in outcomes[1].replies[0]


@pytest.mark.skipif(NATIVE is None, reason="the module in C is not compiled")
async def test_a_batch_is_given_up_in_the_middle() -> None:
    for size in (1, 10_000):
        node, _ = served()
        link, executor = cast("Any", node._link), _Executor()
        batch = JoinedBatch(executor, b"\0" * 4)
        node.send_batch(
            b"get a\r\nset b 0 0 1\r\nx\r\nget c\r\nget d\r\n", batch.part(4, reads=False)
        )
        await asyncio.sleep(0)
        data = b"END\r\nSTORED\r\nVALUE d 0 1\r\nx\r\nEND\r\nEND\r\n"
        for at in range(0, len(data), size):
            link.data_received(data[at : at + size])
        assert batch.reply == b"END\r\nSTORED\r\n" + error(b"VALUE d 0 1") * 2
        assert (executor.failures, node.pending) == (2, 0)
        assert node.returning.missed  # a set is among the requests without a reply


@pytest.mark.skipif(NATIVE is None, reason="the module in C is not compiled")
@pytest.mark.parametrize(
    ("reply", "right"),
    [
        (b"VALUE a 0 1\r\nx\r\nVALUE c 0 1\r\nx\r\nEND\r\n", True), (b"END\r\n", True),
        (b"VALUE c 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n", False),
        (b"VALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n", False), (b"STORED\r\n", False),
        (b"VALUE d 0 1\r\nx\r\nEND\r\n", False),
    ],
)  # fmt: skip
async def test_a_part_of_several_keys(reply: bytes, right: bool) -> None:
    node, _ = served()
    link, executor = cast("Any", node._link), _Executor()
    whole = JoinedMultiGet(executor, [(node, b"get a b c\r\n", 3)], b"\0\0\0")
    node.send(b"get a b c\r\n", whole.part(0))
    after = Outcome()
    node.send(b"get z\r\n", after)
    await asyncio.sleep(0)
    link.data_received(reply + b"VALUE z 0 1\r\nx\r\nEND\r\n")
    if right:
        assert (whole.reply, executor.failures) == (reply, 0)
        assert after.replies == [b"VALUE z 0 1\r\nx\r\nEND\r\n"]
        node.link_lost("over", down=True)
    else:
        assert (whole.reply, executor.failures) == (error(reply), 1)
        assert after.replies == [error(reply)]
