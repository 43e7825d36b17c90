"""Parsing of meta commands, whole and in pieces."""

import pytest

from memlite.protocol.meta import decode_key, encode_key
from tests.unit.protocol.recorder import BAD_FORMAT, K250, K251, Peer, bad_chunk, one_by_one, reject

NOTHING = ("meta_noop",)
DUPLICATE = b"CLIENT_ERROR duplicate flag\r\n"
UNKNOWN = b"CLIENT_ERROR invalid flag\r\n"
BAD_TOKEN = b"CLIENT_ERROR bad token in command line format\r\n"
BAD_KEY = b"CLIENT_ERROR error decoding key\r\n"
BAD_MA = b"CLIENT_ERROR invalid or duplicate flag\r\n"
TOO_LONG = b"CLIENT_ERROR options flags are too long\r\n"
LONG_OPAQUE = b"CLIENT_ERROR opaque token too long\r\n"


def get(key=b"a", **asked):
    return ("meta_get", (key, asked))


def store(value, key=b"a", **asked):
    return ("meta_set", (key, asked), value)


CASES = [
    (b"mn\r\n", [NOTHING]),
    (b"mn a b\r\n", [NOTHING]),
    (b"mg a\r\n", [get()]),
    (b"mg   a   v  \n", [get(value=True)]),
    (b"mg a s t f h l k O1 L2 P3\r\n", [get()]),
    (b"mg a v q u c\r\n", [get(value=True, quiet=True, keep=True, unique_asked=True)]),
    (b"mg a T5\r\n", [get(touch=5, made_with=5)]),
    (b"mg a T-1 N7\r\n", [get(touch=-1, vivify=7, made_with=7)]),
    (b"mg a N7 T5\r\n", [get(touch=5, vivify=7, made_with=5)]),
    (b"mg a R30 T5\r\n", [get(recache=30, recache_first=True, touch=5, made_with=5)]),
    (b"mg a T5 R30\r\n", [get(recache=30, touch=5, made_with=5)]),
    (b"mg YSBi b\r\n", [get(b"a b", binary=True)]),
    (b"mg " + K250 + b"\r\n", [get(K250)]),
    (b"mg\r\n", [reject(BAD_FORMAT)]),
    (b"mg " + K251 + b" v\r\n", [reject(BAD_FORMAT)]),
    (b"mg a v v\r\n", [reject(DUPLICATE)]),
    (b"mg a z\r\n", [reject(UNKNOWN)]),
    (b"mg a z v v\r\n", [reject(UNKNOWN)]),
    (b"mg a v v !\r\n", [reject(BAD_FORMAT)]),
    (b"mg a \xff\r\n", [reject(BAD_FORMAT)]),
    (b"mg a T\r\n", [reject(BAD_TOKEN)]),
    (b"mg a T2147483648\r\n", [reject(BAD_TOKEN)]),
    (b"mg a Nx b\r\n", [reject(BAD_KEY)]),
    (b"mg YQ b\r\n", [reject(BAD_KEY)]),
    (b"mg a b Nx\r\n", [reject(BAD_TOKEN)]),
    (b"mg a O" + b"o" * 31 + b"\r\n", [get()]),
    (b"mg a O" + b"o" * 32 + b"\r\n", [reject(LONG_OPAQUE)]),
    (b"mg a" + b" v" * 19 + b"\r\n", [reject(TOO_LONG)]),
    (b"mg a -" + b" v" * 18 + b"\r\n", [reject(BAD_FORMAT)]),  # the words are read first
    (b"mg a" + b" v" * 18 + b" -\r\n", [reject(TOO_LONG)]),  # and no more of them than these
    (b"ma " + K251 + b" -\r\n", [reject(BAD_FORMAT)]),
    (b"ms " + K251 + b" 2\r\nmn\r\nmn\r\n", [reject(BAD_FORMAT), NOTHING]),
    (b"ms " + K251 + b" 2 -\r\nmn\r\nmn\r\n", [reject(BAD_FORMAT), NOTHING, NOTHING]),
    (b"ms a 2 -" + b" v" * 17 + b"\r\nmn\r\nmn\r\n", [reject(BAD_FORMAT), NOTHING, NOTHING]),
    (b"ms a 2" + b" v" * 17 + b" -\r\nmn\r\nmn\r\n", [reject(TOO_LONG), NOTHING]),
    (b"ms a 2\r\nhi\r\n", [store(b"hi")]),
    (b"ms a -\r\n\r\n", [store(b"")]),
    (b"ms a 1 T-\r\nx\r\n", [store(b"x", touch=0)]),
    (b"ms a 0 q\r\n\r\n", [store(b"", quiet=True)]),
    (b"ms a 4 T60 F5 I\r\n\r\n\r\n\r\n", [
        store(b"\r\n\r\n", touch=60, made_with=60, flags=5, invalidate=True)]),
    (b"ms a 1 C9 E18446744073709551615 MA\r\nx\r\n", [
        store(b"x", compare=9, unique=2**64 - 1, mode=ord("A"))]),
    (b"ms a 2\r\nhiho\r\n", [bad_chunk(), reject(BAD_FORMAT)]),
    (b"ms a 2 z\r\nhi\r\nmn\r\n", [reject(UNKNOWN), NOTHING]),
    (b"ms a 2 Mx\r\nhi\r\nmn\r\n", [
        reject(b"CLIENT_ERROR invalid mode for ms M token\r\n"), NOTHING]),
    (b"ms a 2 M\r\nhi\r\nmn\r\n", [
        reject(b"CLIENT_ERROR invalid mode for ms M token\r\n"), NOTHING]),
    (b"ms a 2 F4294967296\r\nhi\r\nmn\r\n", [reject(BAD_FORMAT), NOTHING]),
    # An error in F has no words of its own.
    (b"ms a 2 Tx F\r\nhi\r\nmn\r\n", [reject(BAD_TOKEN), NOTHING]),
    (b"ms a 2 F Tx\r\nhi\r\nmn\r\n", [reject(BAD_TOKEN), NOTHING]),
    # These words are not flags, so the value is not skipped.
    (b"ms a 2 !\r\nmn\r\n", [reject(BAD_FORMAT), NOTHING]),
    (b"ms a\r\nmn\r\n", [reject(BAD_FORMAT), NOTHING]),
    (b"ms a x\r\nmn\r\n", [reject(BAD_FORMAT), NOTHING]),
    (b"ms a -1\r\nmn\r\n", [reject(BAD_FORMAT), NOTHING]),
    (b"md a\r\n", [("meta_delete", (b"a", {}))]),
    (b"md a I T30 x q C5 E6\r\n", [("meta_delete", (b"a", {
        "invalidate": True, "touch": 30, "made_with": 30, "empty": True, "quiet": True,
        "compare": 5, "unique": 6}))]),
    (b"ma a\r\n", [("meta_count", (b"a", {}))]),
    (b"ma a N0 J13 D5 MD v\r\n", [("meta_count", (b"a", {
        "vivify": 0, "initial": 13, "delta": 5, "mode": ord("D"), "value": True}))]),
    (b"ma a v v\r\n", [reject(BAD_MA)]),
    (b"ma a Dx\r\n", [reject(BAD_MA)]),
    (b"ma " + K251 + b"\r\n", [reject(BAD_MA)]),
    (b"ma a" + b" v" * 19 + b"\r\n", [reject(BAD_MA)]),
    (b"ma a MX\r\n", [reject(b"CLIENT_ERROR invalid mode for ma M token\r\n")]),
    (b"ma a O" + b"o" * 32 + b"\r\n", [reject(LONG_OPAQUE)]),
    (b"me a\r\n", [("meta_debug", (b"a", {}))]),
    (b"me\r\n", [reject(BAD_FORMAT)]),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "calls"), CASES, ids=lambda part: repr(part)[:50])
def test_whole_in_pieces_and_with_trailing_input(wire, calls):
    assert Peer().send(wire) == calls
    assert Peer().send(*one_by_one(wire)) == calls
    assert Peer().send(wire + b"mn\r\n") == [*calls, NOTHING]


def test_a_value_that_is_too_large_is_skipped():
    wire = b"ms a 5000000\r\n" + b"x" * 5_000_000 + b"\r\nmn\r\n"
    half = len(wire) // 2
    assert Peer().send(wire[:half], wire[half:]) == [("too_large", b"ms", b"a", False), NOTHING]


@pytest.mark.parametrize("key", [b"a", b"a b", b"\r\n", bytes(range(187))])
def test_keys_in_base64(key):
    assert decode_key(encode_key(key)) == key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b"YQ==", b"a"),
        (b"Y!Q==", b"a"),  # invalid characters are ignored, as in memcached
        (b"", None),
        (b"====", None),
        (b"YQ", None),
        (b"YQ=", None),
        (b"!!!!", None),
        # So is where the padding is, in the last group of four.
        (b"YQ=A", b"a\0"),
        (b"Y=QA", b"`\x04"),
        (b"=YQA", b"\x01\x84"),
        (b"Y=Q=", b"`"),
        (b"YWJjZA==ZZZZ", b"abcd"),
        (b"Y===", None),
    ],
)
def test_malformed_keys_in_base64(text, key):
    assert decode_key(text) == key
