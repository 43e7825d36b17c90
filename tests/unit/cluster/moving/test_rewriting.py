"""Changes of an item that its node can make in place."""

import pytest

from memlite.cluster.moving.marks import Found, Kind
from memlite.cluster.moving.rewriting import Wish, in_place


@pytest.mark.parametrize(
    ("before", "after", "request_"),
    [
        (b"9", b"10", b"ma k MI D1 C7 c\r\n"),
        (b"10", b"9 ", b"ma k MD D1 C7 c\r\n"),
        (b"10 ", b"12 ", b"ma k MI D2 C7 c\r\n"),
        (b"007", b"8  ", b"ma k MI D1 C7 c\r\n"),
        (b"a", b"ab", b"ms k 1 MA C7 c\r\nb\r\n"),
        (b"a", b"ba", b"ms k 1 MP C7 c\r\nb\r\n"),
        (b"a", b"a", b"ms k 0 MA C7 c\r\n\r\n"),
        (b"", b"12", b"ms k 2 MA C7 c\r\n12\r\n"),
        (b"10", b"9", None),  # a node would pad it
        (b"10 ", b"12", None),
        (b"5", b"007", None),  # a node would omit the zeros
        (b"a", b"b", None),
        (b"ab", b"a", None),
    ],
)
def test_changes_that_keep_the_time_to_live(
    before: bytes, after: bytes, request_: bytes | None
) -> None:
    old = Found(Kind.REAL, unique=7, value=before, flags=3)
    assert in_place(b"k", old, Wish(after, 3, exptime=None)) == request_
    assert in_place(b"k", old, Wish(after, 3, exptime=100)) is None
    assert in_place(b"k", old, Wish(after, 4, exptime=None)) is None


def test_a_unique_may_be_assigned() -> None:
    old = Found(Kind.REAL, unique=7, value=b"1")
    request = in_place(b"k", old, Wish(b"2", exptime=None, unique=99))
    assert request == b"ma k MI D1 C7 E99 c\r\n"
