"""The tasks that a server runs once a second, and tasks that do not wait for the tick.

These tests use a real server and connection with a simulated clock and loop; see `test_fast_path`.
"""

import pytest

from memlite.server.auth.auth import Authenticator
from memlite.telemetry.counters import Counters
from tests.unit.server.connections.test_fast_path import Client


def tick(client, seconds=1.0):
    client.monotonic += seconds
    client.server.upkeep.ticker.tick()


@pytest.fixture
def client():
    """A client of a server that closes connections idle for five seconds, at a tick."""
    client = Client("fast", idle_timeout="5")
    client.server.clock.tick()
    client.read(b"get k\r\n")
    return client


def seconds_until_closed(client):
    for second in range(1, 100):
        tick(client)
        if client.transport.closing:
            return second
    raise AssertionError("it is never closed")


def test_idle_connections_are_closed(client):
    assert seconds_until_closed(client) == 6


@pytest.mark.parametrize("pause", [2.0, 7.5, 60.0])
def test_a_pause_of_the_server_does_not_count_as_idle_time(client, pause):
    tick(client)
    tick(client, pause)
    assert not client.transport.closing
    assert seconds_until_closed(client) == 4


# After a pause, asyncio reads input before it runs timers; uvloop runs timers first.
@pytest.mark.parametrize("first", ["read", "tick"])
@pytest.mark.parametrize("pause", [2.0, 7.5, 60.0])
def test_input_during_a_pause_counts_as_received_at_its_end(client, pause, first):
    for _ in range(4):
        tick(client)
    client.monotonic += pause
    if first == "read":
        client.read(b"get k\r\n")
        client.server.upkeep.ticker.tick()
    else:
        client.server.upkeep.ticker.tick()
        client.read(b"get k\r\n")
    assert seconds_until_closed(client) in (5, 6)


def test_debugtime_is_not_a_pause(client):
    client.server.upkeep.advance_clock(10)
    tick(client, 0.1)
    assert client.transport.closing


def test_debugtime_within_a_second_makes_no_connection_idle(client):
    client = Client("fast", idle_timeout="1")
    client.server.clock.tick()
    client.monotonic += 0.85
    client.read(b"get k\r\n")
    client.server.upkeep.advance_clock(0)
    tick(client, 0.1)
    assert not client.transport.closing


@pytest.mark.parametrize("pause", [0, 3, 60])
def test_a_pause_extends_the_time_to_authenticate(client, pause):
    server = client.server
    auth = server.register._auth = Authenticator(None, Counters(), timeout=5)
    server.upkeep.ticker._duties.append(auth.close_overdue)
    auth.add_pending(client.connection, server.clock.second)
    tick(client)
    tick(client, 1.0 + pause)
    for _ in range(3):
        tick(client)
        assert not client.transport.closing
    client.read(b"get k\r\n")  # not idle
    tick(client)
    assert client.transport.closing


def test_a_delayed_flush_does_not_wait_for_a_tick(client):
    assert client.read(b"flush_all 3\r\n") == b"OK\r\n"
    delay, due = client.server.scheduler.loop.later[-1]
    assert 3 < delay < 3.1
    client.monotonic += delay
    due()
    assert client.read(b"get k\r\n") == b"END\r\n"
