"""A connection that has received a large value waits for room before it reads on; no loop runs."""

import pytest

from memlite.config import Config
from memlite.server.connections.large_values import _ValueReceiver
from memlite.server.server import Server
from tests.unit.server.connections.test_fast_path import Loop, Transport

SIZE = 200_000


class Peer:
    """A peer whose value lacks only its line ending, while items exceed their limit."""

    def __init__(self):
        self.server = Server(Config(), [])
        self.server.scheduler.loop = self.loop = Loop()
        self.table = self.server.table
        self.connection = self.server.connect()
        self.transport = Transport()
        self.connection.connection_made(self.transport)
        self.connection.data_received(b"set large 0 0 %d\r\n" % SIZE)
        receiver = self.transport.protocol
        assert isinstance(receiver, _ValueReceiver)
        assert self.server._large_values.promised == SIZE
        memory = receiver.get_buffer(-1)
        memory[:] = b"x" * SIZE
        self.table.used += self.table.limit
        assert self.table.over
        receiver.buffer_updated(SIZE)

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
    peer.connection.data_received(b"\r\n")
    assert peer.transport.written == [b"STORED\r\n"]
    assert peer.table.get(b"large").value == b"x" * SIZE


def test_reading_resumed_for_another_reason_reaches_the_connection(peer):
    """Examples: the peer reads replies again, or a backend has answered commands."""
    assert peer.transport.protocol is peer.connection
    peer.connection.pause_writing()
    peer.connection.resume_writing()
    assert peer.transport.reading
    peer.table.used -= peer.table.limit
    peer.connection.data_received(b"\r\n")
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
