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
        self.receiver = self.transport.protocol
        assert isinstance(self.receiver, ValueReceiver)
        assert self.server.promised == SIZE
        memory = self.receiver.get_buffer(-1)
        memory[:] = b"x" * SIZE
        self.room, self.table._room = self.table._room, -1
        self.receiver.buffer_updated(SIZE)

    def make_room(self):
        self.table._room = self.room
        self.loop.run()


@pytest.fixture
def peer():
    return Peer()


def test_nothing_more_is_read_until_there_is_room(peer):
    assert not peer.transport.reading
    assert peer.transport.protocol is peer.receiver
    peer.make_room()
    assert peer.transport.reading
    assert peer.transport.protocol is peer.connection
    assert peer.server.promised == 0
    peer.connection.data_received(b"\r\n")
    assert peer.transport.written == [b"STORED\r\n"]
    assert peer.table.get(b"large").value == b"x" * SIZE


def test_not_when_the_peer_takes_replies_again_either(peer):
    """There would be no memory to read into."""
    peer.receiver.pause_writing()
    peer.receiver.resume_writing()
    assert not peer.transport.reading
    peer.make_room()
    assert peer.transport.reading


def test_who_goes_meanwhile_leaves_nothing_behind(peer):
    peer.transport.close()
    peer.receiver.connection_lost(None)
    assert peer.server.promised == 0
    peer.make_room()
    assert peer.transport.protocol is peer.receiver
    assert not peer.server.connections
