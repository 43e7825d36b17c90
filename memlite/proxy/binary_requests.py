"""Conversion of binary requests to text requests for nodes, one for each.

Keys with a space, a line feed or a NUL are sent in base64. Values are read with ``gets`` and
``gats``, as a meta get of a stale item would win the right to recache it.
"""

from typing import Final

from memlite.memory import nameable
from memlite.protocol.meta import encode_key
from memlite.protocol.packets import DO_NOT_CREATE, BinaryRequest, Opcode

__all__ = [
    "MODES",
    "UnsendableKeyError",
    "counting",
    "deleting",
    "flushing",
    "getting",
    "removing",
    "storing",
    "touching",
]

_MAX_KEY_LENGTH: Final = 250  # in base64, too
_MAX_EXPTIME: Final = 2**31 - 1

MODES: Final[dict[int, bytes]] = {
    opcode: mode
    for mode, opcodes in (
        (b"", (Opcode.SET, Opcode.SETQ)),
        (b" ME", (Opcode.ADD, Opcode.ADDQ)),
        (b" MR", (Opcode.REPLACE, Opcode.REPLACEQ)),
        (b" MA", (Opcode.APPEND, Opcode.APPENDQ)),
        (b" MP", (Opcode.PREPEND, Opcode.PREPENDQ)),
    )
    for opcode in map(int, opcodes)
}
"""The flag M of ``ms`` for each storage command."""
_CONDITIONAL: Final = frozenset((b" ME", b" MR"))
_DECREMENTS: Final = frozenset(map(int, (Opcode.DECREMENT, Opcode.DECREMENTQ)))


class UnsendableKeyError(Exception):
    """The key cannot be sent to a node: it needs base64, and is too long in it."""


def _is_word(key: bytes) -> bool:
    return nameable(key) and b"\0" not in key  # older memcacheds end a line at a NUL


def _key(request: BinaryRequest) -> tuple[bytes, bytes]:
    """Return the key in the form to send, and the flag for its encoding.

    Raises:
        UnsendableKeyError: see the class.
    """
    key = request.key
    if _is_word(key):
        return key, b""
    key = encode_key(key)
    if len(key) > _MAX_KEY_LENGTH:
        raise UnsendableKeyError
    return key, b" b"


def _exptime(exptime: int) -> int:
    """Return an exptime for the text protocol, which has no dates after January 2038."""
    return min(exptime, _MAX_EXPTIME)


def getting(request: BinaryRequest) -> bytes:
    """Return the request for GET and its variants."""
    key = request.key
    if _is_word(key):
        return b"gets %b\r\n" % key
    return b"mg %b%b c f v\r\n" % _key(request)


def touching(request: BinaryRequest) -> bytes:
    """Return the request for TOUCH, or for GAT and its variants."""
    exptime = _exptime(request.numbers[0])
    key, base64 = _key(request)
    if request.opcode == Opcode.TOUCH:
        return b"mg %b%b c f T%d\r\n" % (key, base64, exptime)
    if base64:
        return b"mg %b b c f v T%d\r\n" % (key, exptime)
    return b"gats %d %b\r\n" % (exptime, key)


def storing(request: BinaryRequest) -> bytes:
    """Return the request for SET, ADD, REPLACE, APPEND, PREPEND and their quiet variants."""
    key, words = _key(request)
    mode, value = MODES[request.opcode], request.value
    if request.cas:
        words += b" C%d" % request.cas
        if mode in _CONDITIONAL:
            mode = b""  # comparing cas uniques already requires an item
    if request.numbers:
        flags, exptime = request.numbers
        if flags:
            words += b" F%d" % flags
        if exptime:
            words += b" T%d" % _exptime(exptime)
    return b"ms %b %d c%b%b\r\n%b\r\n" % (key, len(value), mode, words, value)


def deleting(request: BinaryRequest) -> bytes:
    """Return the request for DELETE and DELETEQ."""
    key, words = _key(request)
    if request.cas:
        words += b" C%d" % request.cas
    return b"md %b%b\r\n" % (key, words)


def removing(request: BinaryRequest) -> bytes:
    """Return the request to delete an item whatever its cas unique."""
    return b"md %b%b\r\n" % _key(request)


def counting(request: BinaryRequest) -> bytes:
    """Return the request for INCREMENT, DECREMENT and their quiet variants."""
    delta, initial, exptime = request.numbers
    key, words = _key(request)
    if exptime != DO_NOT_CREATE:
        words += b" N%d J%d" % (_exptime(exptime), initial)
    if request.cas:
        words += b" C%d" % request.cas
    mode = b"D" if request.opcode in _DECREMENTS else b"I"
    return b"ma %b c v M%b D%d%b\r\n" % (key, mode, delta, words)


def flushing(request: BinaryRequest) -> bytes:
    """Return the request for FLUSH and FLUSHQ."""
    if request.numbers:
        return b"flush_all %d\r\n" % _exptime(request.numbers[0])
    return b"flush_all\r\n"
