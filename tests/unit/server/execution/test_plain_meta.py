"""Replies to mg for plain items: heads are cached, for every item and every set of flags."""

from itertools import permutations

import pytest

from memlite.memory import Item
from memlite.memory.item import wire_form
from memlite.server.execution.plain_meta import plain_flags, read_plain_flags

ITEMS = [(b"key", 0, b"value"), (b"key", 7, b"value"), (b"%b%%", 0, b"other"), (b"k", 0, b"")]


def expected(words: tuple[bytes, ...], key: bytes, flags: int, value: bytes) -> bytes:
    shown = {b"s": b"s%d" % len(value), b"f": b"f%d" % flags, b"t": b"t-1", b"k": b"k" + key}
    status = b"VA %d" % len(value) if b"v" in words else b"HD"
    line = b" ".join([status, *(shown[word] for word in words if word in shown)])
    return line + b"\r\n" + (value + b"\r\n" if b"v" in words else b"")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 6])
def test_replies_have_what_was_asked_for_in_its_order(count: int) -> None:
    for words in permutations((b"v", b"s", b"f", b"t", b"k", b"q"), count):
        asked = b" ".join(words)
        for _ in range(2):  # the second time, the head is known
            for key, flags, value in ITEMS:
                found = plain_flags(asked) or read_plain_flags(asked)
                assert found is not None
                reply = found.reply(key, Item(wire_form(key, flags, value), 0))
                assert reply == expected(words, key, flags, value)
                assert found.quiet == (b"q" in words)


@pytest.mark.parametrize("words", [b"v v", b"v c", b"v  s", b" v", b"v ", b"V", b"vs", b"O1"])
def test_other_flags_have_no_shortcut(words: bytes) -> None:
    assert read_plain_flags(words) is None
    assert plain_flags(words) is None
