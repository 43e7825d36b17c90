"""A connection that has received a large value waits for room before it reads on; no loop runs."""

import sys

import pytest

from memlite.config import Config
from memlite.protocol import pieces
from memlite.server.connections.part_reader import PartReader
from memlite.server.server import Server
from tests.unit.server.connections.test_fast_path import Loop, Transport

SIZE = 400_000


class Peer:
    """A peer whose value lacks only its line ending, while items exceed their limit."""

    def __init__(self):
        self.server = Server(Config(), [])
        self.server.scheduler.loop = self.loop = Loop()
        self.server.counters.until_slow_sample = 1000  # sampled reads are left to the parser
        self.table = self.server.table
        self.connection = self.server.connect()
        self.transport = Transport()
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)
        self.connection.data_received(b"set large 0 0 %d\r\n" % SIZE)
        self.reader = self.transport.protocol
        assert isinstance(self.reader, PartReader)
        assert self.server._large_values.promised == SIZE
        memory = self.reader.get_buffer(-1)
        assert len(memory) == SIZE
        memory[:] = b"x" * SIZE
        self.table.used += self.table.limit
        assert self.table.over
        self.reader.buffer_updated(SIZE)

    def send(self, data):
        """Send input of at most 16 KiB."""
        memory = self.reader.get_buffer(-1)
        memory[: len(data)] = data
        self.reader.buffer_updated(len(data))

    def make_room(self):
        self.table.used -= self.table.limit
        self.loop.run()


@pytest.fixture
def peer():
    return Peer()


def test_nothing_more_is_read_until_there_is_room(peer):
    assert not peer.transport.reading
    peer.make_room()
    assert peer.transport.reading
    assert peer.server._large_values.promised == 0
    peer.send(b"\r\n")
    assert peer.transport.written == [b"STORED\r\n"]
    assert peer.table.get(b"large").value == b"x" * SIZE


def test_reading_resumed_for_another_reason_reaches_the_connection(peer):
    """Examples: the peer reads replies again, or a backend has answered commands."""
    peer.connection.pause_writing()
    peer.connection.resume_writing()
    assert peer.transport.reading
    peer.table.used -= peer.table.limit
    peer.send(b"\r\n")
    assert peer.transport.written == [b"STORED\r\n"]
    peer.loop.run()
    assert peer.server._large_values.promised == 0


def test_a_peer_that_disconnects_in_the_meantime_leaves_no_state(peer):
    peer.transport.close()
    peer.connection.connection_lost(None)
    peer.transport.reading = None
    peer.make_room()
    assert peer.server._large_values.promised == 0
    assert peer.transport.reading is None
    assert not peer.server.register.connections


def test_a_connection_keeps_its_parser_until_its_client_sends_something_small(peer):
    peer.make_room()
    peer.send(b"\r\n")
    parser, executor = peer.connection.parser, peer.connection.executor
    assert parser is not peer.server._connections.shared_parser
    peer.send(b"set large 0 0 %d\r\n" % SIZE)
    assert peer.connection.parser is parser
    assert peer.connection.executor is executor
    memory = peer.reader.get_buffer(-1)
    memory[:] = b"y" * SIZE
    peer.reader.buffer_updated(SIZE)
    peer.send(b"\r\nget none\r\n")
    peer.send(b"get none\r\n")
    assert peer.transport.written == [b"STORED\r\n", b"STORED\r\nEND\r\n", b"END\r\n"]
    assert peer.table.get(b"large").value == b"y" * SIZE
    if peer.server._connections.shared_executor is not None:  # there is a runner
        assert peer.connection.parser is peer.server._connections.shared_parser
        assert peer.connection.executor is peer.server._connections.shared_executor


def test_a_client_that_sends_only_small_commands_is_read_as_usual_again(peer):
    peer.make_room()
    peer.send(b"\r\n")
    for _ in range(6):
        peer.send(b"get none\r\n")
    assert peer.transport.protocol is peer.reader
    peer.send(b"get none\r\n")
    assert peer.transport.protocol is peer.connection
    assert peer.transport.reading


def test_small_commands_between_large_values_do_not_add_up(peer):
    peer.make_room()
    peer.send(b"\r\n")
    for _ in range(3):
        for _ in range(6):
            peer.send(b"get none\r\n")
        peer.send(b"set large 0 0 %d\r\n" % SIZE)
        memory = peer.reader.get_buffer(-1)
        memory[:] = b"x" * SIZE
        peer.reader.buffer_updated(SIZE)
        peer.send(b"\r\n")
    assert peer.transport.protocol is peer.reader


def receive_value(peer, size):
    peer.send(b"set large 0 0 %d\r\n" % size)
    memory = peer.reader.get_buffer(-1)
    memory[:] = b"x" * size
    peer.reader.buffer_updated(size)


def test_after_a_shorter_value_a_client_is_read_as_usual_again(peer):
    peer.make_room()
    peer.send(b"\r\n")
    receive_value(peer, SIZE)
    peer.send(b"\r\n")
    assert peer.transport.protocol is peer.reader
    receive_value(peer, 200_000)
    assert peer.transport.protocol is peer.connection
    assert peer.transport.reading
    peer.connection.data_received(b"\r\n")
    assert peer.transport.written == [b"STORED\r\n"] * 3


def test_after_a_full_read_without_a_long_value_a_client_is_read_as_usual_again(peer):
    peer.make_room()
    peer.send(b"\r\n")
    assert peer.transport.protocol is peer.reader
    peer.send((b"set small 0 0 16500\r\n" + b"x" * 16_384)[: 16 * 1024])
    assert peer.transport.protocol is peer.connection


def test_without_memory_nothing_is_counted_as_promised(monkeypatch):
    server = Server(Config(), [])
    server.scheduler.loop = Loop()
    connection = server.connect()
    transport = Transport()
    transport.protocol = connection
    connection.connection_made(transport)
    monkeypatch.setattr(pieces, "uninitialized_bytes", lambda size: bytearray(sys.maxsize))
    with pytest.raises((MemoryError, OverflowError)):
        connection.data_received(b"set large 0 0 %d\r\n" % SIZE)
    assert server._large_values.promised == 0
