"""Connections without incomplete input share a parser, and an executor while a runner serves them.

A command that one connection has begun is never continued by another.
"""

import pytest

from memlite.config import Config
from memlite.core.build import running_build
from memlite.server.connections import native_receiver
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


def test_an_endless_line_closes_only_its_connection(server):
    one, _ = connect(server)
    other, replies = connect(server)
    one.data_received(b"x" * 5000)
    other.data_received(b"version\r\n")
    assert replies[0].startswith(b"VERSION ")
    assert not other.parser.in_command


@pytest.mark.skipif(
    running_build() == "compiled", reason="methods of compiled classes cannot be replaced"
)
def test_a_failure_leaves_no_input_to_other_connections(server, monkeypatch):
    one, _ = connect(server)
    other, replies = connect(server)

    def fail(*arguments):
        raise RuntimeError("on purpose")

    monkeypatch.setattr(server.engine, "set_framed", fail)
    # A long value, because the parser does not hand it back to the C code.
    one.data_received(b"set a 0 0 70000\r\n" + b"v" * 69_990)
    with pytest.raises(RuntimeError):
        one.data_received(b"v" * 10 + b"\r\nset b 0 0 1\r\nx\r\nget ")
    monkeypatch.undo()
    other.data_received(b"get a\r\n")
    assert replies == [b"END\r\n"]


needs_runner = pytest.mark.skipif(
    native_receiver.NATIVE is None, reason="the modules in C are not compiled"
)


@needs_runner
def test_an_executor_is_there_while_it_is_needed(server):
    one, _ = connect(server)
    other, _ = connect(server)
    shared = other.executor
    assert one.executor is shared
    one.data_received(b"get a\r\n")
    assert one.executor is shared
    for _ in range(2):
        one.data_received(b"version\r\n")  # not for the runner
        server.scheduler.loop.run()
        assert one.executor is not shared
        one.data_received(b"get a\r\n")
        assert one.executor is shared
    assert other.executor is shared
    one.data_received(b"version\r\n")
    one.connection_lost(None)
    other.data_received(b"get a\r\n")


@needs_runner
def test_each_connection_gets_its_own_replies(server):
    one, replies = connect(server)
    other, replies_to_other = connect(server)
    large = b"set large 0 0 200000\r\n%b\r\n" % (b"v" * 200_000)
    for data in (SET, large, b"get large a\r\n", b"stats sizes\r\n", b"get a large large\r\n"):
        one.data_received(data)
        other.data_received(b"mn\r\n")
        other.data_received(b"verbosity 0\r\nget a\r\n")
        server.scheduler.loop.run()
    value = b"VALUE a 0 5\r\nhello\r\n"
    assert b"".join(replies_to_other) == (b"MN\r\nOK\r\n%bEND\r\n" % value) * 5
    said = b"".join(replies)
    assert said.startswith(b"STORED\r\nSTORED\r\nVALUE large")
    assert said.count(b"VALUE large 0 200000\r\n" + b"v" * 200_000) == 3
    assert said.count(value) == 2
