"""Values that arrive in pieces, of every size and number."""

import random

import pytest

from memlite.protocol.pieces import Pieces


@pytest.mark.parametrize("longest", [1, 7, 1_000, 300_000])
def test_the_value_is_what_arrived(longest: int) -> None:
    rng = random.Random(longest)
    expected = rng.randbytes(min(40 * longest * longest, 10_000_000))
    pieces = Pieces(len(expected))
    position = 0
    while pieces.missing:
        piece = expected[position : position + rng.randint(0, longest)]
        position += len(piece)
        pieces.append(piece)
        assert pieces.missing == len(expected) - position
    assert pieces.value() == expected


def test_large_and_small_pieces_alternate() -> None:
    pieces = Pieces(100_000_000)
    for size in (1, 5_000_000, 3, *[2] * 5_000, 4_194_304):
        pieces.append(b"x" * size)
    missing = 100_000_000 - 1 - 5_000_000 - 3 - 10_000 - 4_194_304
    assert pieces.missing == missing
    assert len(pieces.value()) == 100_000_000 - missing


def test_the_last_piece_is_joined_with_all_before_it() -> None:
    pieces = Pieces(5_000, b"head ")
    for _ in range(4_998):
        assert not pieces.whole(b"x")
        pieces.append(b"x")
    assert pieces.whole(b"yz and more") == b"head " + b"x" * 4_998 + b"yz and more"


@pytest.mark.parametrize(("size", "head"), [(3, b""), (64 * 1024, b"head ")])
def test_a_long_value_and_one_without_head_are_not_joined(size: int, head: bytes) -> None:
    assert not Pieces(size, head).whole(b"x" * size)
