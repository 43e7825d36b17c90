"""Text-protocol authentication: each case whole, byte by byte, and with trailing bytes."""

import pytest

from memlite.core.errors import ProtocolViolation
from memlite.protocol import Limits, replies
from memlite.protocol.login import TOKEN_LENGTH, Attempt, Credentials, TextLoginReader

GOOD = Credentials(b"user", b"secret")
CASES = {
    b"set any 0 0 11\r\nuser secret\r\n": [GOOD],
    b"set any 0 0 11\nuser secret\r\n": [GOOD],
    b"set  any x y 11  z\r\nuser secret\r\n": [GOOD],
    b"set x 0 0 13\r\nuser a b\0\r\n d\r\n": [Credentials(b"user", b"a b\0\r\n d")],
    b"set x 0 0 5\r\nuser \r\n": [Credentials(b"user", b"")],
    b"set x 0 0 2\r\n u\r\n": [Credentials(b"", b"u")],
    b"set x 0 0 2\r\nhi\r\n": [replies.BAD_TOKEN],
    b"set x 0 0 0\r\n\r\n": [replies.BAD_TOKEN],
    b"set x 0 0 3\r\na bXY": [replies.BAD_TERMINATION],
    b"set x 0 0 16385\r\n": [replies.TOKEN_TOO_LONG],
    b"set x 0 0 2147483646\r\n": [replies.TOKEN_TOO_LONG],
    b"set x 0 0 4294967296\r\n": [replies.UNAUTHENTICATED],
    b"set x 0 0 -1\r\n": [replies.UNAUTHENTICATED],
    b"set x 0 0\r\n": [replies.UNAUTHENTICATED],
    b"add x 0 0 11\r\n": [replies.UNAUTHENTICATED],
    b"get x\r\nversion\r\n": [replies.UNAUTHENTICATED] * 2,
    b"set x 0 0 2\r\nhi\r\nset x 0 0 11\r\nuser secret\r\n": [replies.BAD_TOKEN, GOOD],
}


def read(reader: TextLoginReader) -> list[object]:
    found: list[object] = []
    while (one := reader.next()) is not None:
        if isinstance(one, Attempt):
            found.append(one.credentials)
            break
        found.append(one)
    return found


@pytest.mark.parametrize(("data", "expected"), CASES.items())
def test_whole(data: bytes, expected: list[object]) -> None:
    reader = TextLoginReader(Limits())
    reader.feed(data)
    assert read(reader) == expected
    assert not reader.unfinished


@pytest.mark.parametrize(("data", "expected"), CASES.items())
def test_byte_by_byte(data: bytes, expected: list[object]) -> None:
    reader, found = TextLoginReader(Limits()), []
    for byte in data:
        reader.feed(bytes([byte]))
        found += read(reader)
    assert found == expected


@pytest.mark.parametrize("data", [data for data, found in CASES.items() if GOOD in found])
def test_trailing_input_is_kept(data: bytes) -> None:
    reader = TextLoginReader(Limits())
    reader.feed(data + b"get x\r\nmore")
    assert GOOD in read(reader)
    assert reader.rest() == b"get x\r\nmore"
    assert not reader.unfinished


@pytest.mark.parametrize(
    "data", [b"\r\n\r\n", b"quit\r\n", b"12345\n", b"\x80", b"\x80\x20" + bytes(22), b"x" * 2049]
)
def test_the_connection_is_closed(data: bytes) -> None:
    reader = TextLoginReader(Limits())
    reader.feed(data)
    with pytest.raises(ProtocolViolation):
        reader.next()


def test_the_longest_line_and_token() -> None:
    reader = TextLoginReader(Limits())
    reader.feed(b"x" * 2048)
    assert reader.next() is None
    reader.feed(b"\nset x 0 0 %d\r\n" % TOKEN_LENGTH)
    assert reader.next() == replies.UNAUTHENTICATED
    assert reader.next() is None
    assert reader.in_token
    reader.feed(b"u " + b"p" * (TOKEN_LENGTH - 2) + b"\r\n")
    assert read(reader) == [Credentials(b"u", b"p" * (TOKEN_LENGTH - 2))]


def test_a_password_is_not_shown() -> None:
    assert "secret" not in f"{GOOD} {GOOD!r} {[GOOD]}"
