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
