"""A large value that is there waits until there is room for it; no loop runs."""

import pytest

from memlite.config import Config
from memlite.server.connection import Connection
from memlite.server.receiver import ValueReceiver
from memlite.server.server import Server
from tests.unit.test_straight_path import Loop, Transport

SIZE = 200_000


class Exchanging(Transport):
    """A transport that knows its protocol."""

    def set_protocol(self, protocol):
        self.protocol = protocol


class Peer:
    """One whose value is all there but for its line's end, while items take more than they may."""

    def __init__(self):
        self.server = Server(Config(), [])
        self.server.loop = self.loop = Loop()
        self.table = self.server.table
        self.connection = Connection(self.server)
        self.transport = Exchanging()
        self.connection.connection_made(self.transport)
        self.connection.data_received(b"set large 0 0 %d\r\n" % SIZE)
        receiver = self.transport.protocol
        assert isinstance(receiver, ValueReceiver)
        assert self.server.promised == SIZE
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
    assert peer.server.promised == 0
    peer.connection.data_received(b"\r\n")
    assert peer.transport.written == [b"STORED\r\n"]
    assert peer.table.get(b"large").value == b"x" * SIZE


def test_who_reads_on_for_another_reason_finds_the_connection(peer):
    """As when the peer takes replies again, or a backend has answered earlier commands."""
    assert peer.transport.protocol is peer.connection
    peer.connection.pause_writing()
    peer.connection.resume_writing()
    assert peer.transport.reading
    peer.table.used -= peer.table.limit
    peer.connection.data_received(b"\r\n")
    assert peer.transport.written == [b"STORED\r\n"]
    peer.loop.run()
    assert peer.server.promised == 0


def test_who_goes_meanwhile_leaves_nothing_behind(peer):
    peer.transport.close()
    peer.connection.connection_lost(None)
    peer.transport.reading = None
    peer.make_room()
    assert peer.server.promised == 0
    assert peer.transport.reading is None
    assert not peer.server.connections
