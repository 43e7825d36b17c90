"""Hash functions for keys, each exactly as in the client library or proxy that uses it."""

import struct
from typing import Final

__all__ = ["fnv1a_64_word", "md5_long", "md5_word", "md5_words", "murmur3_32"]

_WORD: Final = 0xFFFFFFFF
_FNV_OFFSET: Final = 0xCBF29CE484222325 & _WORD
_FNV_PRIME: Final = 0x100000001B3 & _WORD
# Signed characters, as a C compiler for x86 widens them.
_WIDENED: Final = tuple(byte if byte < 128 else byte | 0xFFFFFF00 for byte in range(256))
_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593
_words_of_digest = struct.Struct("<4I").unpack
_word_of_digest = struct.Struct("<I12x").unpack
_long_of_digest = struct.Struct("<Q8x").unpack


try:
    # The interpreter's own takes half as long as OpenSSL's for data as short as a key.
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:  # a build without it
    from hashlib import md5


def _md5(data: bytes) -> bytes:
    digest: bytes = md5(data, usedforsecurity=False).digest()
    return digest


def md5_words(data: bytes) -> tuple[int, ...]:
    """Return the four little-endian 32-bit words of the MD5 digest."""
    return _words_of_digest(_md5(data))


def md5_word(data: bytes) -> int:
    """Return the first of `md5_words`: libmemcached's hash of keys for weighted ketama."""
    number: int = _word_of_digest(md5(data, usedforsecurity=False).digest())[0]
    return number


def md5_long(data: bytes) -> int:
    """Return the first eight bytes of the MD5 digest, little-endian."""
    number: int = _long_of_digest(_md5(data))[0]
    return number


def fnv1a_64_word(data: bytes) -> int:
    """Return twemproxy's default hash of keys: the low 32 bits of the 64-bit FNV-1a hash.

    Bytes of 128 and above are sign-extended, as in twemproxy.
    """
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ _WIDENED[byte]) * _FNV_PRIME & _WORD
    return value


def murmur3_32(data: bytes) -> int:
    """Return MurmurHash3 (x86, 32 bits) with seed 0, as in pymemcache."""
    size = len(data)
    whole = size >> 2
    value = 0
    for block in struct.unpack_from(f"<{whole}I", data):
        block = block * _C1 & _WORD
        block = (block << 15 | block >> 17) * _C2 & _WORD
        value ^= block
        value = ((value << 13 | value >> 19) * 5 + 0xE6546B64) & _WORD
    if size & 3:
        block = int.from_bytes(data[whole * 4 :], "little") * _C1 & _WORD
        value ^= (block << 15 | block >> 17) * _C2 & _WORD
    value ^= size
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    return value ^ value >> 16
