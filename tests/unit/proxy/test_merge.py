"""Several nodes' replies become one, in the order of the request."""

from collections.abc import Sequence

import pytest

from memlite.proxy.merge import Merger

A, B, C = b"VALUE a 0 1\r\n1\r\n", b"VALUE b 5 2 77\r\n\r\n\r\n", b"VALUE c 0 0\r\n\r\n"
END = b"END\r\n"


def merge(keys: Sequence[tuple[bytes, int]], replies: Sequence[bytes]) -> bytes:
    """Merge twice: the second time, the headers are known."""
    merger = Merger()
    first = merger.merge(keys, replies)
    assert merger.merge(keys, replies) == first
    return first


def test_items_come_in_the_order_of_the_keys() -> None:
    keys = [(b"c", 0), (b"b", 1), (b"a", 0)]
    assert merge(keys, [C + A + END, B + END]) == C + B + A + END


def test_misses_are_left_out() -> None:
    keys = [(b"a", 0), (b"x", 0), (b"c", 0), (b"b", 1)]
    assert merge(keys, [A + C + END, END]) == A + C + END


def test_a_key_may_come_twice() -> None:
    keys = [(b"a", 0), (b"b", 1), (b"a", 0)]
    assert merge(keys, [A + A + END, B + END]) == A + B + A + END


def test_an_error_has_no_items() -> None:
    assert merge([(b"a", 0), (b"b", 1)], [A + END, b"SERVER_ERROR x\r\n"]) == A + END


def test_a_value_may_look_like_a_reply() -> None:
    odd = b"VALUE a 0 13\r\nVALUE b 0 1\r\n\r\n"
    assert merge([(b"a", 0), (b"b", 1)], [odd + END, B + END]) == odd + B + END


def test_keys_that_begin_alike_are_told_apart() -> None:
    longer = b"VALUE aa 0 1\r\n2\r\n"
    assert merge([(b"a", 0), (b"aa", 0), (b"b", 1)], [longer + END, END]) == longer + END


def test_a_header_that_has_changed_is_parsed_again() -> None:
    merger, keys = Merger(), [(b"a", 0), (b"b", 1)]
    for item in (
        A,
        b"VALUE a 0 3\r\n123\r\n",
        b"VALUE a 1 3\r\n123\r\n",
        b"VALUE a 0 0 9\r\n\r\n",
        b"",
    ):
        assert merger.merge(keys, [item + END, B + END]) == item + B + END


def test_the_headers_of_many_keys() -> None:
    merger = Merger()
    for number in range(70_000):
        item = b"VALUE %d 0 1\r\n1\r\n" % number
        assert merger.merge([(b"%d" % number, 0)], [item + END]) == item + END
    assert len(merger._headers) <= 32_768


@pytest.mark.parametrize("known", [False, True])
def test_a_reply_may_end_anywhere(known: bool) -> None:
    reply, merger, keys = A + B + C + END, Merger(), [b"a", b"b", b"c"]
    if known:
        assert merger.items(keys, reply) == ([A, B, C], len(reply) - len(END))
    for size in range(len(reply)):
        _, end = merger.items(keys, reply[:size])
        assert reply[:size][end : end + len(END)] != END
