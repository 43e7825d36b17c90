"""The time limits of a connection to the HTTP port."""

import asyncio
from typing import Any

import pytest

from memlite.server.http.guard import Guard


class Inner(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Transport(asyncio.Transport):
    unread = 0
    aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.aborted = True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


Parts = tuple[Guard, Clock, Transport, list[Any]]


@pytest.fixture
def parts() -> Parts:
    clock, transport, closed = Clock(), Transport(), []
    guard = Guard(Inner(), clock, closed.append)
    guard.connection_made(transport)
    return guard, clock, transport, closed


def overdue_after(guard: Guard, clock: Clock, seconds: float) -> bool:
    """Return whether the guard becomes overdue within `seconds`, checked once a second."""
    for _ in range(int(seconds)):
        clock.now += 1
        if guard.overdue():
            return True
    return False


def test_a_silent_client_is_overdue(parts: Parts) -> None:
    guard, clock, _, _ = parts
    assert not overdue_after(guard, clock, 10)
    assert overdue_after(guard, clock, 1)


def test_a_request_that_dribbles_in_is_overdue(parts: Parts) -> None:
    guard, clock, _, _ = parts
    for _ in range(10):
        guard.data_received(b"x")
        assert not overdue_after(guard, clock, 1)
    guard.data_received(b"x")
    assert overdue_after(guard, clock, 1)


def test_a_connection_may_idle_between_requests(parts: Parts) -> None:
    guard, clock, _, _ = parts
    guard.data_received(b"GET")
    guard.began()
    assert not overdue_after(guard, clock, 1000)  # the reply is not complete: an event stream
    guard.ended()
    assert not overdue_after(guard, clock, 90)
    guard.data_received(b"GET")  # the next request has to arrive as fast as the first one
    assert not overdue_after(guard, clock, 10)
    assert overdue_after(guard, clock, 1)


def test_a_connection_may_not_idle_forever(parts: Parts) -> None:
    guard, clock, _, _ = parts
    guard.began()
    guard.ended()
    assert not overdue_after(guard, clock, 90)
    assert overdue_after(guard, clock, 1)


def test_a_client_that_does_not_read_is_overdue(parts: Parts) -> None:
    guard, clock, transport, _ = parts
    guard.began()
    transport.unread = 5
    assert not overdue_after(guard, clock, 9)
    transport.unread = 0
    assert not overdue_after(guard, clock, 5)
    transport.unread = 5
    assert not overdue_after(guard, clock, 10)
    assert overdue_after(guard, clock, 1)


def test_a_client_that_sends_too_much_during_a_reply_is_disconnected(parts: Parts) -> None:
    guard, _, transport, _ = parts
    inner = guard.inner
    assert isinstance(inner, Inner)
    for _ in range(3):  # each reply resets the count
        guard.began()
        for _ in range(64):
            guard.data_received(bytes(1024))
        guard.ended()
    assert not transport.aborted
    guard.began()
    guard.data_received(bytes(64 * 1024))
    guard.data_received(b"x")
    assert transport.aborted
    assert len(inner.received) == 4 * 64 * 1024


def test_events_are_passed_on(parts: Parts) -> None:
    guard, _, transport, closed = parts
    inner = guard.inner
    assert isinstance(inner, Inner)
    guard.data_received(b"abc")
    assert inner.received == b"abc"
    guard.abort()
    assert transport.aborted
    guard.connection_lost(None)
    assert inner.lost
    assert closed == [guard]
    guard.abort()  # does nothing
