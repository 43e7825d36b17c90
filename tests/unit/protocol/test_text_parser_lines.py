"""The text parser and lines without an end."""

from dataclasses import replace

import pytest

from memlite.core.errors import ProtocolViolation
from tests.unit.protocol.recorder import ERROR, LIMITS, Peer, one_by_one, reject


@pytest.mark.parametrize("chunk", [1, 7, 100, 5000])
@pytest.mark.parametrize(
    "start",
    [b"", b"set a 0 0 1 ", b"gat 0 ", b"getx ", b"get\t", b"GET ", b" " * 101 + b"get ",
     b" " * 3000],
    ids=repr,
)  # fmt: skip
def test_an_endless_line_closes_the_connection(start, chunk):
    peer = Peer()
    line = start + b"x" * 5000
    taken = 0
    with pytest.raises(ProtocolViolation, match="unterminated line"):
        for at in range(0, len(line), chunk):
            peer.send(line[at : at + chunk])
            taken = at + chunk
    assert taken <= LIMITS.line_length  # no byte over the limit was accepted
    assert peer.calls == []


def test_a_line_may_be_as_long_as_the_limit():
    peer = Peer()
    peer.send(b"x" * LIMITS.line_length)
    with pytest.raises(ProtocolViolation):
        peer.send(b"x")


@pytest.mark.parametrize("chunk", [1, 999, 100_000])
@pytest.mark.parametrize("name", [b"get", b"gets"])
def test_get_lines_may_be_longer(name, chunk):
    keys = [b"key%d" % number for number in range(1000)]
    line = name + b" " + b" ".join(keys) + b"\r\n"
    peer = Peer()
    chunks = [line[at : at + chunk] for at in range(0, len(line), chunk)]
    assert peer.send(*chunks) == [(name.decode(), keys)]


def test_a_get_line_after_a_hundred_spaces_is_accepted():
    line = b" " * 100 + b"gets " + b"k " * 2000 + b"\r\n"
    assert Peer().send(*one_by_one(line)) == [reject(ERROR)]


@pytest.mark.parametrize("chunk", [1, 500])
def test_get_line_has_a_limit_too(chunk):
    limits = replace(LIMITS, line_length=100, get_line_length=1000)
    peer = Peer(limits)
    line = b"get " + b"k" * 996
    peer.send(*(line[at : at + chunk] for at in range(0, len(line), chunk)))
    with pytest.raises(ProtocolViolation):
        peer.send(b"k")
