"""Framing in C gives the same results as in Python."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlite.proxy.framing import (
    NATIVE,
    gather_in_python,
    interleave_in_python,
    split_gets_in_python,
)
from memlite.proxy.merge import Merger

needs_c = pytest.mark.skipif(NATIVE is None, reason="the module in C is not compiled")
IN_PYTHON = pytest.param(None, id="Python")
IN_C = pytest.param(NATIVE, id="C", marks=needs_c)
both = pytest.mark.parametrize("native", [IN_PYTHON, IN_C])

HIT = b"VALUE k 0 5\r\nvalue\r\n"
END = b"END\r\n"


class Owner:
    """An owner, compared by identity."""


def functions(native: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    if native is None:
        return gather_in_python, interleave_in_python
    return native.gather, native.interleave


@both
@pytest.mark.parametrize(("count", "number"), [(0, 1), (1, 1), (10, 3), (64, 64), (500, 200)])
def test_pieces_are_gathered_and_put_back(native: Any, count: int, number: int) -> None:
    gather, interleave = functions(native)
    rng = random.Random(count)
    some = [Owner() for _ in range(number)]
    owners = [rng.choice(some) for _ in range(count)]
    values = [b"%d" % one for one in range(count)]
    parts = gather(owners, values)
    assert list(parts) == list(dict.fromkeys(owners))
    for owner, own in parts.items():
        assert own == [v for o, v in zip(owners, values, strict=True) if o is owner]
    assert interleave(owners, parts, b"", b"!") == b"".join(values) + b"!"
    assert interleave(owners, parts, END, b"") == b"".join(one + END for one in values)
    assert parts == gather(owners, values)  # `interleave` has not changed them


@both
def test_equal_owners_count_as_one(native: Any) -> None:
    gather, _ = functions(native)
    one, another = (b"%d" % number for number in (1000, 1000))
    assert one is not another
    assert gather([one, another, one], [b"1", b"2", b"3"]) == {one: [b"1", b"2", b"3"]}


@both
def test_too_few_pieces_are_an_error(native: Any) -> None:
    _, interleave = functions(native)
    a, b = Owner(), Owner()
    for parts in ({a: [b"1"], b: []}, {a: [b"1"]}, {}):
        with pytest.raises((ValueError, StopIteration, KeyError)):
            interleave([a, b], parts, b"", b"")


@needs_c
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("split_gets", ("text",)),
        ("split_gets", (None,)),
        ("items", ([], b"")),
        ("items", ((), b"", 0)),
        ("items", ([b"k"], "text", 0)),
        ("items", ([b"k"], b"", 1)),
        ("items", ([b"k"], b"", -1)),
        ("items", ([b"k"], b"", 2**80)),
        ("items", (["k"], b"", 0)),
        ("gather", ([1], [])),
        ("gather", ([1],)),
        ("gather", ([[]], [b""])),
        ("interleave", ([], {}, b"")),
        ("interleave", ([], [], b"", b"")),
        ("interleave", ([1], {1: b"x"}, b"", b"")),
        ("interleave", ([1], {1: ["x"]}, b"", b"")),
        ("interleave", ([1], {1: [b"x"]}, "", b"")),
    ],
)
def test_wrong_arguments_are_refused(name: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        getattr(NATIVE, name)(*arguments)


FRAGMENTS = [
    b"VALUE ", b"VALUE k 0 3\r\n", b"VALUE k 0 3 9\r\n", b"VALUE k 0 0\r\n\r\n", HIT, HIT + END,
    b"V 1 2 3\r\n", b"abc\r\n", b"END\r\n", b"STORED\r\n", b"V", b"k", b"3", b"-1", b"1_0", b"007",
    b"9223372036854775807", b"9999999999999999999", b"99999999999999999999", b" ", b"\r", b"\n",
    b"\r\n", b"\0", b"\t", b"\xff",
]  # fmt: skip
hostile = st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=3), max_size=20).map(b"".join)


@needs_c
@given(hostile)
@example(b"V k 0 9223372036854775807\r\n" + END)
@example(b"V k 0 9999999999999999999\r\n" + END)
def test_gets_are_split_in_c_as_in_python(data: bytes) -> None:
    assert NATIVE is not None
    found, end = NATIVE.split_gets(data)
    assert b"".join(reply + END for reply in found) == data[:end]
    other, before = split_gets_in_python(data)
    assert found[: len(other)] == other
    # The Python version stops at a value that contains END.
    assert len(found) == len(other) or data[before:end].count(END) > len(found) - len(other)


KEYS = [b"k", b"kk", b"a\tb", b"VALUE", b"END", b"0"]
items = st.builds(
    lambda key, flags, value, unique: (
        b"VALUE %b %d %d%b\r\n%b\r\n" % (key, flags, len(value), unique, value)
    ),
    st.sampled_from(KEYS),
    st.integers(0, 9),
    st.binary(max_size=9) | st.sampled_from([END, b"\r\n", HIT]),
    st.sampled_from([b"", b" 7"]),
)


@needs_c
@given(
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=6),
    st.lists(items | hostile, max_size=6).map(b"".join),
    st.sampled_from([b"", b"END\r\n", b"VALUE k 0 9"]),
    st.integers(0, 3),
)
def test_items_are_found_in_c_as_in_python(
    keys: list[bytes], data: bytes, end: bytes, position: int
) -> None:
    assert NATIVE is not None
    reply = data + end
    position = min(position, len(reply))
    found = NATIVE.items(keys, reply, position)
    assert found == Merger().items_in_python(keys, reply, position)
    assert reply[position : found[1]] == b"".join(found[0])


@both
def test_items_of_keys_with_control_characters(native: Any) -> None:
    keys = [b"a\tb", b"c\x0bd", b"e\rf"]
    own = [b"VALUE %b 0 1\r\n1\r\n" % key for key in keys]
    reply = b"".join([*own, END])
    find = Merger().items_in_python if native is None else native.items
    assert find(keys, reply, 0) == (own, len(reply) - len(END))
