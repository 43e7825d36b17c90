"""SASL authentication: each case whole, byte by byte, and with trailing bytes."""

from struct import Struct

import pytest

from memlite.core.errors import ProtocolViolation
from memlite.core.version import SERVER_VERSION
from memlite.protocol import Limits
from memlite.protocol.login import TOKEN_LENGTH, Attempt, Credentials, Farewell
from memlite.protocol.packets import Opcode, Status
from memlite.protocol.sasl import SaslReader, parse_plain

_HEADER = Struct(">BBHBBHIIQ")
GOOD = b"\0user\0secret"
USER = Credentials(b"user", b"secret")


def packet(opcode: int, key: bytes = b"", value: bytes = b"", extras: bytes = b"") -> bytes:
    size = len(key) + len(value) + len(extras)
    head = _HEADER.pack(0x80, opcode, len(key), len(extras), 0, 0, size, 0xABCD, 0)
    return head + extras + key + value


def answer(opcode: int, status: int = 0, value: bytes = b"") -> bytes:
    return _HEADER.pack(0x81, opcode, 0, 0, 0, status, len(value), 0xABCD, 0) + value


def last(opcode: int, status: Status, text: bytes) -> Farewell:
    return Farewell(answer(opcode, status, text))


AUTH, STEP, LIST = Opcode.SASL_AUTH, Opcode.SASL_STEP, Opcode.SASL_LIST_MECHS
REFUSED = b"Auth failure."
INVALID = b"Invalid arguments"
CONTINUE = answer(AUTH, Status.AUTH_CONTINUE)
CASES = [
    ([packet(LIST)], [answer(LIST, 0, b"PLAIN")]),
    ([packet(Opcode.VERSION)], [answer(Opcode.VERSION, 0, SERVER_VERSION.encode())]),
    ([packet(AUTH, b"PLAIN", GOOD)], [USER]),
    ([packet(AUTH, b"plain", GOOD)], [USER]),
    ([packet(AUTH, b"PLAIN", b"user" + GOOD)], [USER]),
    ([packet(AUTH, b"PLAIN", b"other" + GOOD)], [None]),
    ([packet(AUTH, b"PLAIN", b"user secret")], [None]),
    ([packet(AUTH, b"CRAM-MD5", GOOD)], [None]),
    ([packet(AUTH, b"CRAM-MD5")], [None]),
    ([packet(AUTH, b"X" * 33, GOOD), packet(LIST)],
     [answer(AUTH, Status.INVALID, INVALID), answer(LIST, 0, b"PLAIN")]),
    ([packet(STEP, b"PLAIN", GOOD)], [None]),
    ([packet(AUTH, b"PLAIN"), packet(STEP, b"PLAIN", GOOD)], [CONTINUE, USER]),
    ([packet(AUTH, b"PLAIN"), packet(STEP, b"PLAIN", b"x"), packet(STEP, b"PLAIN", GOOD)],
     [CONTINUE, None, None]),
    ([packet(AUTH, b"PLAIN"), packet(AUTH, b"PLAIN", GOOD)], [CONTINUE, USER]),
    ([packet(Opcode.GET, b"x")], [last(Opcode.GET, Status.AUTH_ERROR, REFUSED)]),
    ([packet(Opcode.NOOP)], [last(Opcode.NOOP, Status.AUTH_ERROR, REFUSED)]),
    ([packet(0x77)], [last(0x77, Status.AUTH_ERROR, REFUSED)]),
    ([packet(LIST, b"x")], [last(LIST, Status.INVALID, INVALID)]),
    ([packet(AUTH, b"", GOOD)], [last(AUTH, Status.INVALID, INVALID)]),
    ([packet(AUTH, b"PLAIN", GOOD, b"1234")], [last(AUTH, Status.INVALID, INVALID)]),
]  # fmt: skip


def read(reader: SaslReader) -> list[object]:
    found: list[object] = []
    while (one := reader.next()) is not None:
        found.append(one.credentials if isinstance(one, Attempt) else one)
        if isinstance(one, Farewell):
            break
    return found


@pytest.mark.parametrize(("packets", "expected"), CASES)
def test_whole(packets: list[bytes], expected: list[object]) -> None:
    reader = SaslReader(Limits())
    reader.feed(b"".join(packets))
    assert read(reader) == expected


@pytest.mark.parametrize(("packets", "expected"), CASES)
def test_byte_by_byte(packets: list[bytes], expected: list[object]) -> None:
    reader, found = SaslReader(Limits()), []
    for byte in b"".join(packets):
        reader.feed(bytes([byte]))
        found += read(reader)
        if found and isinstance(found[-1], Farewell):
            break
    assert found == expected


def test_trailing_input_is_kept() -> None:
    reader = SaslReader(Limits())
    reader.feed(packet(AUTH, b"PLAIN", GOOD) + packet(Opcode.NOOP))
    attempt = reader.next()
    assert isinstance(attempt, Attempt)
    assert attempt.success == answer(AUTH, 0, b"Authenticated")
    assert attempt.failure == answer(AUTH, Status.AUTH_ERROR, REFUSED)
    assert reader.unfinished
    assert reader.rest() == packet(Opcode.NOOP)
    assert not reader.unfinished


def test_impossible_lengths() -> None:
    reader = SaslReader(Limits())
    reader.feed(_HEADER.pack(0x80, AUTH, 9, 0, 0, 0, 5, 0xABCD, 0))
    assert reader.next() == last(AUTH, Status.UNKNOWN_COMMAND, b"Unknown command")


def test_the_longest_message() -> None:
    password = b"x" * (TOKEN_LENGTH - len(b"\0user\0"))
    reader = SaslReader(Limits())
    reader.feed(packet(AUTH, b"PLAIN", b"\0user\0" + password))
    assert read(reader) == [Credentials(b"user", password)]
    # A longer message is refused when its header arrives.
    reader.feed(_HEADER.pack(0x80, AUTH, 5, 0, 0, 0, TOKEN_LENGTH + 33, 0xABCD, 0))
    assert reader.next() == last(AUTH, Status.INVALID, INVALID)


@pytest.mark.parametrize("data", [b"get x\r\n", b"\x81"])
def test_input_that_is_not_a_binary_request(data: bytes) -> None:
    reader = SaslReader(Limits())
    reader.feed(data)
    with pytest.raises(ProtocolViolation):
        reader.next()


@pytest.mark.parametrize(
    "message", [b"", b"\0", b"\0\0", b"\0user\0", b"\0\0secret", b"\0user\0a\0b", b"user secret"]
)
def test_malformed_plain_messages(message: bytes) -> None:
    assert parse_plain(message) is None
