"""Parsing of meta commands and their flags (``doc/protocol.txt``, "Meta Commands")."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Final

from memlite.protocol import replies
from memlite.protocol.malformed import MalformedError
from memlite.protocol.numbers import signed_32, unsigned

__all__ = ["MetaRequest", "UnreadableError", "decode_key", "encode_key", "parse_meta"]

_MAX_WORDS: Final = 20
_CLIENT_FLAGS: Final = ord("F")
_OPAQUE: Final = ord("O")
_MAX_OPAQUE: Final = 32  # bytes, including the O
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_MAX_PADDING: Final = 2
_NOT_BASE64: Final = bytes(set(range(256)) - set(_BASE64))
# The characters memcached accepts at the start of a flag, whether it knows the flag or not.
_FLAG_LETTERS: Final = frozenset(range(ord("A"), ord("z") + 1)) | frozenset(b"0123456789")

_TOO_LONG: Final = b"CLIENT_ERROR options flags are too long\r\n"
_DUPLICATE: Final = b"CLIENT_ERROR duplicate flag\r\n"
_UNKNOWN: Final = b"CLIENT_ERROR invalid flag\r\n"
_BAD_KEY: Final = b"CLIENT_ERROR error decoding key\r\n"
_BAD_TOKEN: Final = b"CLIENT_ERROR bad token in command line format\r\n"
_BAD_INITIAL: Final = b"CLIENT_ERROR invalid numeric initial value\r\n"
_BAD_DELTA: Final = b"CLIENT_ERROR invalid numeric delta value\r\n"
_LONG_OPAQUE: Final = b"CLIENT_ERROR opaque token too long\r\n"


class UnreadableError(MalformedError):
    """A line that does not consist of words and flags. After an ms, the value is not skipped."""

    def __init__(self) -> None:
        super().__init__(replies.BAD_FORMAT)


class MetaRequest:
    """A parsed meta command.

    Attributes:
        key: the item's key, decoded.
        words: the flags with their tokens, in request order, which is also the reply's order.
        binary: whether the key was sent as base64 (b).
        quiet: whether to suppress the usual reply (q).
        value: whether to return the value (v).
        keep: whether to leave the item's access time and LRU position alone (u).
        unique_asked: whether to return the cas unique (c).
        touch: the new exptime (T), None if not given.
        vivify: the exptime for an item created on a miss (N), None if not given.
        made_with: the exptime such an item gets: from N or T, whichever came last.
        recache: the remaining TTL in seconds below which one client wins the right to recache (R),
            None if not given.
        recache_first: whether R came before T.
        compare: the cas unique the item must have (C), None if not given.
        unique: the cas unique to give it (E), None if not given.
        flags: the client flags (F).
        mode: the letter after M, 0 if not given.
        initial: the initial number on auto-creation (J).
        delta: the amount to add or subtract (D).
        invalidate: whether to mark the item as stale; in ms, to accept an older cas unique (I).
        empty: whether to remove the value but keep the item (x).
    """

    # Class-level defaults, because most requests differ from them in only one or two attributes.
    binary = False
    quiet = False
    value = False
    keep = False
    unique_asked = False
    recache_first = False
    invalidate = False
    empty = False
    touch: int | None = None
    vivify: int | None = None
    recache: int | None = None
    compare: int | None = None
    unique: int | None = None
    flags = 0
    mode = 0
    initial = 0
    made_with = 0
    delta = 1

    def __init__(self, key: bytes, words: Sequence[bytes]) -> None:
        self.key = key
        self.words = words

    def __str__(self) -> str:
        """Return the command line without the command's name, in printable ASCII."""
        key = encode_key(self.key) if self.binary else self.key
        text = b" ".join((key, *self.words)).decode("latin-1")
        return text.encode("unicode_escape").decode("ascii")


def encode_key(key: bytes) -> bytes:
    """Return a key in base64, as sent with the flag b."""
    return b64encode(key)


def decode_key(text: bytes) -> bytes | None:
    """Decode a base64 key, ignoring invalid characters; return None if that is impossible."""
    digits = text.translate(None, _NOT_BASE64)
    if len(digits) % 4:
        return None
    padding = digits.find(b"=")
    if padding < 0:
        return b64decode(digits) or None
    # As in memcached, padding may be anywhere in a group of four, which then is the last.
    start = padding & -4
    last = digits[start : start + 4]
    missing = last.count(b"=")
    if missing > _MAX_PADDING:
        return None
    return b64decode(digits[:start] + last.replace(b"=", b"A"))[:-missing]


def parse_meta(
    words: Sequence[bytes], first: int, key_length: int, wrong_flags: bytes = b""
) -> MetaRequest:
    """Parse a meta command.

    Args:
        words: the words of the line.
        first: the index of the first flag.
        key_length: the longest key allowed, in bytes.
        wrong_flags: the reply to any error in the key or the flags; if empty, each error has its
            own reply.

    Raises:
        UnreadableError: the words are not flags.
        MalformedError: the command is malformed in another way.
    """
    key = words[1]
    if len(key) > key_length or len(words) > _MAX_WORDS:
        # memcached reads up to this many words before it checks any of them.
        if not _are_flags(words[first:_MAX_WORDS]):
            raise UnreadableError
        error = replies.BAD_FORMAT if len(key) > key_length else _TOO_LONG
        raise MalformedError(wrong_flags or error)
    request = MetaRequest(key, words[first:])
    if len(words) == first:
        return request
    error = _set_flags(request)
    if error is _LONG_OPAQUE:
        raise MalformedError(_LONG_OPAQUE)
    if error:
        if not _are_flags(request.words):
            raise UnreadableError
        raise MalformedError(wrong_flags or error)
    return request


def _are_flags(words: Sequence[bytes]) -> bool:
    return _FLAG_LETTERS.issuperset(word[0] for word in words)


def _set_flags(request: MetaRequest) -> bytes:
    """Set the request's attributes from its flags; return an error reply or ``b""``."""
    error = opaque_error = b""
    seen = set()
    for word in request.words:
        letter = word[0]
        if letter in seen:
            return _DUPLICATE
        seen.add(letter)
        set_flag = _FLAGS.get(letter)
        if set_flag is None:
            return _UNKNOWN
        # memcached reports the last error it finds, but has no message of its own for one in F.
        found = set_flag(request, word)
        error = (error or found) if letter == _CLIENT_FLAGS else (found or error)
        if letter == _OPAQUE and len(word) > _MAX_OPAQUE:
            opaque_error = _LONG_OPAQUE
    return error or opaque_error


_Setter = Callable[[MetaRequest, bytes], bytes]


def _switch(name: str) -> _Setter:
    def set_flag(request: MetaRequest, word: bytes) -> bytes:
        setattr(request, name, True)
        return b""

    return set_flag


def _number(name: str, parse: Callable[[bytes], int | None], error: bytes) -> _Setter:
    def set_flag(request: MetaRequest, word: bytes) -> bytes:
        number = parse(word[1:])
        if number is None:
            return error
        setattr(request, name, number)
        return b""

    return set_flag


def _unsigned_32(token: bytes) -> int | None:
    return unsigned(token, 2**32)


def _unsigned_64(token: bytes) -> int | None:
    return unsigned(token, 2**64)


def _ignore(request: MetaRequest, word: bytes) -> bytes:
    return b""


def _binary(request: MetaRequest, word: bytes) -> bytes:
    key = decode_key(request.key)
    if key is None:
        return _BAD_KEY
    request.key, request.binary = key, True
    return b""


def _mode(request: MetaRequest, word: bytes) -> bytes:
    request.mode = word[1] if len(word) > 1 else ord(" ")
    return b""


def _exptime(name: str) -> _Setter:
    set_exptime = _number(name, signed_32, _BAD_TOKEN)

    def set_flag(request: MetaRequest, word: bytes) -> bytes:
        error = set_exptime(request, word)
        request.made_with = getattr(request, name) or 0
        return error

    return set_flag


_set_recache = _number("recache", signed_32, _BAD_TOKEN)


def _recache(request: MetaRequest, word: bytes) -> bytes:
    request.recache_first = request.touch is None
    return _set_recache(request, word)


_FLAGS: Final[dict[int, _Setter]] = {
    ord(letter): set_flag
    for letter, set_flag in {
        "b": _binary,
        "c": _switch("unique_asked"),
        "f": _ignore,
        "h": _ignore,
        "k": _ignore,
        "l": _ignore,
        "q": _switch("quiet"),
        "s": _ignore,
        "t": _ignore,
        "u": _switch("keep"),
        "v": _switch("value"),
        "x": _switch("empty"),
        "C": _number("compare", _unsigned_64, _BAD_TOKEN),
        "D": _number("delta", _unsigned_64, _BAD_DELTA),
        "E": _number("unique", _unsigned_64, _BAD_TOKEN),
        "F": _number("flags", _unsigned_32, replies.BAD_FORMAT),
        "I": _switch("invalidate"),
        "J": _number("initial", _unsigned_64, _BAD_INITIAL),
        # L and P are meant for proxies; servers ignore them.
        "L": _ignore,
        "M": _mode,
        "N": _exptime("vivify"),
        "O": _ignore,
        "P": _ignore,
        "R": _recache,
        "T": _exptime("touch"),
    }.items()
}
