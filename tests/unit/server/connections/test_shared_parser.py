"""Connections without incomplete input share a parser; what one has begun is no other's."""

import pytest

from memlite.config import Config
from memlite.core.build import running_build
from memlite.server.server import Server
from tests.unit.server.connections.test_fast_path import Loop, Transport

SET = b"set a 0 0 5\r\nhello\r\n"


@pytest.fixture
def server():
    one = Server(Config(), [])
    one.scheduler.loop = Loop()
    return one


def connect(server):
    connection = server.connect()
    transport = Transport()
    connection.connection_made(transport)
    return connection, transport.written


@pytest.mark.parametrize("cut", range(1, len(SET)))
def test_half_a_command_stays_with_its_connection(server, cut):
    one, replies = connect(server)
    other, replies_to_other = connect(server)
    one.data_received(SET[:cut])
    other.data_received(b"get a\r\n")
    other.data_received(SET[: len(SET) - cut])
    one.data_received(SET[cut:])
    other.data_received(SET[len(SET) - cut :] + b"get a\r\n")
    assert b"".join(replies) == b"STORED\r\n"
    assert b"".join(replies_to_other) == b"END\r\nSTORED\r\nVALUE a 0 5\r\nhello\r\nEND\r\n"
    assert one.parser is other.parser  # again


def test_a_turn_that_is_not_over_stays_with_its_connection(server):
    one, replies = connect(server)
    other, replies_to_other = connect(server)
    one.data_received(b"mn\r\n" * 50)
    other.data_received(b"mn\r\n")
    server.scheduler.loop.run()
    assert (b"".join(replies), b"".join(replies_to_other)) == (b"MN\r\n" * 50, b"MN\r\n")
    assert one.parser is other.parser


def test_a_line_without_an_end_closes_its_connection_alone(server):
    one, _ = connect(server)
    other, replies = connect(server)
    one.data_received(b"x" * 5000)
    other.data_received(b"version\r\n")
    assert replies[0].startswith(b"VERSION ")
    assert not other.parser.in_command


@pytest.mark.skipif(
    running_build() == "compiled", reason="methods of compiled classes cannot be replaced"
)
def test_a_failure_leaves_nothing_to_the_others(server, monkeypatch):
    one, _ = connect(server)
    other, replies = connect(server)

    def fail(*arguments):
        raise RuntimeError("on purpose")

    monkeypatch.setattr(server.engine, "set_framed", fail)
    # A long value, as the parser does not give it back to what is in C.
    one.data_received(b"set a 0 0 70000\r\n" + b"v" * 69_990)
    with pytest.raises(RuntimeError):
        one.data_received(b"v" * 10 + b"\r\nset b 0 0 1\r\nx\r\nget ")
    monkeypatch.undo()
    other.data_received(b"get a\r\n")
    assert replies == [b"END\r\n"]
