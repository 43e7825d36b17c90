"""Meta commands: one letter for each option, some with a token (``doc/protocol.txt``, "Meta")."""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from typing import Final

from memlite.errors import CommandError
from memlite.protocol import replies
from memlite.protocol.numbers import signed_32, unsigned

__all__ = ["MetaRequest", "UnreadableError", "decode_key", "encode_key", "parse_meta"]

_MAX_WORDS: Final = 20
_OPAQUE: Final = ord("O")
_MAX_OPAQUE: Final = 32  # bytes, the O among them
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_NOT_BASE64: Final = bytes(set(range(256)) - set(_BASE64))
# What a flag may begin with so that memcached takes it for one, known or not.
_FLAG_LETTERS: Final = frozenset(range(ord("A"), ord("z") + 1)) | frozenset(b"0123456789")

_TOO_LONG: Final = b"CLIENT_ERROR options flags are too long\r\n"
_DUPLICATE: Final = b"CLIENT_ERROR duplicate flag\r\n"
_UNKNOWN: Final = b"CLIENT_ERROR invalid flag\r\n"
_BAD_KEY: Final = b"CLIENT_ERROR error decoding key\r\n"
_BAD_TOKEN: Final = b"CLIENT_ERROR bad token in command line format\r\n"
_BAD_INITIAL: Final = b"CLIENT_ERROR invalid numeric initial value\r\n"
_BAD_DELTA: Final = b"CLIENT_ERROR invalid numeric delta value\r\n"
_LONG_OPAQUE: Final = b"CLIENT_ERROR opaque token too long\r\n"


class UnreadableError(CommandError):
    """A line that is not even made of words and flags; in ms, its value is not skipped either."""

    def __init__(self) -> None:
        super().__init__(replies.BAD_FORMAT)


class MetaRequest:
    """What a meta command asks for.

    Attributes:
        key: the item's, decoded.
        words: the flags with their tokens, in the order in which they came and are answered.
        binary: the key came as base64 (b).
        quiet: leave out the usual answer (q).
        value: answer with the value (v).
        keep: do not count as a read (u).
        unique_asked: answer with the cas unique (c).
        touch: new exptime (T); None without.
        vivify: exptime of an item to be made where there is none (N); None without.
        made_with: exptime such an item gets: that of N or T, whichever came last.
        recache: seconds left to live below which somebody is to store anew (R); None without.
        recache_first: R came before T.
        compare: the cas unique that the item must have (C); None without.
        unique: the one to give it (E); None without.
        flags: the client's flags (F).
        mode: the letter behind M; 0 without.
        initial: the number to begin with (J).
        delta: what to count by (D).
        invalidate: show as stale from now on; in ms, accept what is older (I).
        empty: take the value away and leave the item (x).
    """

    __slots__ = (
        "binary", "compare", "delta", "empty", "flags", "initial", "invalidate", "keep", "key",
        "made_with", "mode", "quiet", "recache", "recache_first", "touch", "unique",
        "unique_asked", "value", "vivify", "words",
    )  # fmt: skip

    def __init__(self, key: bytes, words: Sequence[bytes]) -> None:
        self.key = key
        self.words = words
        self.binary = self.quiet = self.value = self.keep = self.unique_asked = False
        self.recache_first = self.invalidate = self.empty = False
        self.touch: int | None = None
        self.vivify: int | None = None
        self.recache: int | None = None
        self.compare: int | None = None
        self.unique: int | None = None
        self.flags = self.mode = self.initial = self.made_with = 0
        self.delta = 1

    def __str__(self) -> str:
        """Return what the command line said behind the command's name, in visible ASCII."""
        key = encode_key(self.key) if self.binary else self.key
        text = b" ".join((key, *self.words)).decode("latin-1")
        return text.encode("unicode_escape").decode("ascii")


def encode_key(key: bytes) -> bytes:
    """Return a key as the flag b has it."""
    return b64encode(key)


def decode_key(text: bytes) -> bytes | None:
    """Return the key that is written as base64; None if it is not. What is no digit is ignored."""
    digits = text.translate(None, _NOT_BASE64)
    if len(digits) % 4:
        return None
    try:
        return b64decode(digits, validate=True) or None
    except Base64Error:
        return None


def parse_meta(
    words: Sequence[bytes], first: int, key_length: int, wrong_flags: bytes = b""
) -> MetaRequest:
    """Read a meta command.

    Args:
        words: those of the line.
        first: which of them is the first flag.
        key_length: bytes of the longest key.
        wrong_flags: the reply to all that may be wrong with flags; each has its own without.

    Raises:
        UnreadableError: its words are no flags.
        CommandError: it is malformed in another way.
    """
    key = words[1]
    if len(key) > key_length:
        raise CommandError(replies.BAD_FORMAT)
    if len(words) > _MAX_WORDS:
        raise CommandError(_TOO_LONG)
    request = MetaRequest(key, words[first:])
    if len(words) == first:
        return request
    error = _set_flags(request)
    if error:
        if not _FLAG_LETTERS.issuperset(word[0] for word in request.words):
            raise UnreadableError
        raise CommandError(wrong_flags or error)
    if any(word[0] == _OPAQUE and len(word) > _MAX_OPAQUE for word in request.words):
        raise CommandError(_LONG_OPAQUE)
    return request


def _set_flags(request: MetaRequest) -> bytes:
    """Return what is wrong with the flags, if something is."""
    error = b""
    seen = set()
    for word in request.words:
        letter = word[0]
        if letter in seen:
            return _DUPLICATE
        seen.add(letter)
        set_flag = _FLAGS.get(letter)
        if set_flag is None:
            return _UNKNOWN
        # The last thing that is wrong is the one memcached names.
        error = set_flag(request, word) or error
    return error


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


def _nothing(request: MetaRequest, word: bytes) -> bytes:
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
        "f": _nothing,
        "h": _nothing,
        "k": _nothing,
        "l": _nothing,
        "q": _switch("quiet"),
        "s": _nothing,
        "t": _nothing,
        "u": _switch("keep"),
        "v": _switch("value"),
        "x": _switch("empty"),
        "C": _number("compare", _unsigned_64, _BAD_TOKEN),
        "D": _number("delta", _unsigned_64, _BAD_DELTA),
        "E": _number("unique", _unsigned_64, _BAD_TOKEN),
        "F": _number("flags", _unsigned_32, replies.BAD_FORMAT),
        "I": _switch("invalidate"),
        "J": _number("initial", _unsigned_64, _BAD_INITIAL),
        # For proxies, which look at them; a server passes over them.
        "L": _nothing,
        "M": _mode,
        "N": _exptime("vivify"),
        "O": _nothing,
        "P": _nothing,
        "R": _recache,
        "T": _exptime("touch"),
    }.items()
}
