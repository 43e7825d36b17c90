"""Requests sent to the gutter in place of a node: its items expire soon."""

import pytest

from memlite.proxy.gutter_requests import capped, keys_of, rewritten, with_keys

NOW = 1_800_000_000.5
TTL = 60
MONTH = 30 * 24 * 3600


@pytest.mark.parametrize(
    ("exptime", "result"),
    [
        (0, TTL),
        (1, 1),
        (TTL, TTL),
        (TTL + 1, TTL),
        (MONTH, TTL),
        (MONTH + 1, -1),  # a unix time that has passed
        (int(NOW), -1),
        (int(NOW) + 1, 1),
        (int(NOW) + 1000, TTL),
        (2**31 - 1, TTL),
        (-1, -1),
        (-(2**31), -(2**31)),
    ],
)
def test_exptimes(exptime: int, result: int) -> None:
    assert capped(exptime, TTL, NOW) == result


@pytest.mark.parametrize(
    ("request_", "result"),
    [
        (b"get k\r\n", b"get k\r\n"),
        (b"gat 0 k l\r\n", b"gat 60 k l\r\n"),
        (b"touch k 100\r\n", b"touch k 60\r\n"),
        (b"delete k 0\r\n", b"delete k 0\r\n"),
        (b"set k 7 0 3\r\na\nb\r\n", b"set k 7 60 3\r\na\nb\r\n"),
        (b"add k 7 5 1\r\na\r\n", b"add k 7 5 1\r\na\r\n"),
        (b"replace  k 7 +99 1\r\na\r\n", b"replace k 7 60 1\r\na\r\n"),
        (b"mg k v t\r\n", b"mg k v t\r\n"),
        (b"mg k v T0 N90\r\n", b"mg k v T60 N60\r\n"),
        (b"ms k 1\r\na\r\n", b"ms k 1 T60\r\na\r\n"),
        (b"ms k 1 T30 F5\r\na\r\n", b"ms k 1 T30 F5\r\na\r\n"),
        (b"ms k 1 ME T0\r\na\r\n", b"ms k 1 ME T60\r\na\r\n"),
        (b"md k I T900\r\n", b"md k I T60\r\n"),
        (b"gets k\r\n", None),
        (b"gats 1 k\r\n", None),
        (b"cas k 0 0 1 5\r\na\r\n", None),
        (b"append k 0 0 1\r\na\r\n", None),
        (b"prepend k 0 0 1\r\na\r\n", None),
        (b"incr k 1\r\n", None),
        (b"decr k 1\r\n", None),
        (b"ma k N0\r\n", None),
        (b"me k\r\n", None),
        (b"mg k v c\r\n", None),
        (b"ms k 1 C5\r\na\r\n", None),
        (b"ms k 1 E5\r\na\r\n", None),
        (b"ms k 1 MA\r\na\r\n", None),
        (b"ms k 1 Mp\r\na\r\n", None),
        (b"md k C5\r\n", None),
    ],
)
def test_requests(request_: bytes, result: bytes | None) -> None:
    assert rewritten(request_, TTL, NOW) == result


@pytest.mark.parametrize(
    ("request_", "keys"),
    [
        (b"get a b\r\n", [b"a", b"b"]),
        (b"gats 9 a b\r\n", [b"a", b"b"]),
        (b"set a 0 0 1\r\nx\r\n", [b"a"]),
        (b"mg YSBi b v\r\n", [b"a b"]),
        (b"ms YQ== 1 b\r\nx\r\n", [b"a"]),
        (b"ms b 1\r\nx\r\n", [b"b"]),
        (b"flush_all 0\r\n", []),
        (b"get a\tb  c\x0b\r\n", [b"a\tb", b"c\x0b"]),
        (b"set a\tb 0 0 1\r\nx\r\n", [b"a\tb"]),
        (b"md a\tb\r\n", [b"a\tb"]),
    ],
)
def test_keys(request_: bytes, keys: list[bytes]) -> None:
    assert list(keys_of(request_)) == keys


def test_other_keys() -> None:
    assert with_keys(b"get a b c\r\n", [b"a", b"c"]) == b"get a c\r\n"
    assert with_keys(b"gat 5 a b c\r\n", [b"b"]) == b"gat 5 b\r\n"
    assert with_keys(b"gat 5 a\tb c\r\n", [b"a\tb"]) == b"gat 5 a\tb\r\n"
    assert rewritten(b"set a\tb 0 0 1\r\nx\r\n", TTL, NOW) == b"set a\tb 0 %d 1\r\nx\r\n" % TTL
