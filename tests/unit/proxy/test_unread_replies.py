"""Replies held for clients that do not read."""

from collections import deque
from typing import Any

import pytest

from memlite.config import Config
from memlite.proxy.connection import ProxyConnection
from memlite.proxy.node import Access
from memlite.proxy.proxy import Proxy
from memlite.proxy.unread_replies import UnreadReplies
from memlite.server.connections.states import State
from memlite.server.execution.dialects import TEXT


class Client:
    def __init__(self) -> None:
        self.held = 0
        self.number = 7
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_held_replies_are_counted() -> None:
    replies = UnreadReplies(most=100, spared=8)
    one, other = Client(), Client()
    for client, size, total in ((one, 10, 10), (other, 50, 60), (one, 30, 80), (other, 20, 50)):
        client.held = size
        replies.count(client)
        assert replies.size == total
    replies.forget(one)
    replies.forget(one)
    assert replies.size == 20
    assert not one.aborted
    assert not other.aborted
    assert replies.disconnected == 0


def test_the_client_with_the_most_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    replies = UnreadReplies(most=100, spared=8)
    small, large, last = Client(), Client(), Client()
    for client, size in ((small, 20), (large, 80), (last, 5)):
        client.held = size
        replies.count(client)
    assert [client.aborted for client in (small, large, last)] == [False, True, False]
    assert (replies.size, replies.disconnected) == (25, 1)
    assert "MB of unread replies" in caplog.text


def test_a_client_that_has_read_meanwhile_is_spared() -> None:
    replies = UnreadReplies(most=100, spared=8)
    reading, stuck = Client(), Client()
    for client, size in ((reading, 90), (stuck, 10)):
        client.held = size
        replies.count(client)
    reading.held = 40  # nothing was sent to it since
    stuck.held = 60
    replies.count(stuck)
    assert not reading.aborted
    assert not stuck.aborted
    assert replies.size == 100


def test_clients_that_ask_for_one_value_at_a_time_are_spared() -> None:
    replies = UnreadReplies(most=100, spared=60)
    clients = [Client() for _ in range(20)]
    for number, client in enumerate(clients):
        client.held = 50
        replies.count(client)
        assert replies.size == 50 * (number + 1)
    assert not any(client.aborted for client in clients)
    greedy = clients[7]
    greedy.held = 70
    replies.count(greedy)
    assert greedy.aborted
    assert replies.disconnected == 1


def test_many_small_replies_leave_the_limit_unchanged() -> None:
    replies = UnreadReplies(most=100, spared=60)
    clients = [Client() for _ in range(20)]
    for client in clients:
        client.held = 50
        replies.count(client)
    for client in clients:
        replies.forget(client)
    assert replies.size == 0
    greedy = clients[0]
    for size in (70, 101):
        assert not greedy.aborted
        greedy.held = size
        replies.count(greedy)
    assert greedy.aborted


class Transport:
    """Takes one write at a time."""

    def __init__(self, connection: ProxyConnection) -> None:
        self.connection = connection
        self.held = 0

    def write(self, data: bytes) -> None:
        self.held += len(data)
        self.connection.writable = False

    def get_write_buffer_size(self) -> int:
        return self.held

    def is_closing(self) -> bool:
        return False


def test_replies_written_after_a_client_has_read_a_part_are_counted() -> None:
    unread = UnreadReplies(10_000, 0)
    proxy = Proxy(Config(), None, [], access=Access(60))
    connection = ProxyConnection(proxy._services, unread)
    transport = Transport(connection)
    for name, value in {
        "_transport": transport,
        "_state": State.BLOCKED,
        "_unsent": deque([bytes(4000), bytes(3000)]),
    }.items():
        setattr(connection, name, value)
    transport.write(bytes(2000))
    transport.held = 0  # the client has read this write
    connection.resume_writing()
    assert unread.size == 7000


@pytest.mark.parametrize("half_closed", [False, True])
def test_a_client_that_has_half_closed_its_connection_is_closed_after_its_last_reply(
    half_closed: bool,
) -> None:
    """The connection must see that reply, even if the client was slow to read."""
    proxy = Proxy(Config(), None, [], access=Access(60))
    connection: Any = ProxyConnection(proxy._services, UnreadReplies(10_000, 0))
    connection._transport = Transport(connection)
    connection._write = connection._transport.write
    connection.speak(TEXT)
    connection._state = State.SERVING
    connection._leave_fast_path()
    connection._enter_fast_path()
    assert connection.executor.lone.write is not None
    if half_closed:
        assert connection.eof_received() is False
        connection._enter_fast_path()  # as when the client has read the blocked replies
    assert (connection.executor.lone.write is None) is half_closed
