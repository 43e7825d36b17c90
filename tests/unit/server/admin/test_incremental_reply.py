"""Replies that are computed in steps."""

import asyncio

import pytest

from memlite.server.admin import incremental_reply
from memlite.server.admin.incremental_reply import IncrementalReply, finish


class Client:
    """A connection that records what happens to it."""

    def __init__(self):
        self.stream = None
        self.sent = []

    def attach(self, stream):
        self.stream = stream

    def detach(self):
        self.stream = None

    def send(self, data):
        self.sent.append(data)

    async def detached(self):
        async with asyncio.timeout(60):
            while self.stream is not None:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)


class Work:
    """A scan with a clock of its own, which only the scan's steps advance."""

    def __init__(self):
        self.now = 0.0
        self.steps = 0

    def scan(self, steps, seconds):
        """Run a scan of some steps of equal duration; return how many steps were taken."""
        for _ in range(steps):
            self.now += seconds
            self.steps += 1
            yield
        return self.steps


@pytest.fixture
def work(monkeypatch):
    work = Work()
    monkeypatch.setattr(incremental_reply, "perf_counter", lambda: work.now)
    return work


def encode(result):
    return b"%d" % result


def test_finish_returns_the_result(work):
    assert finish(work.scan(0, 1)) == 0
    assert finish(work.scan(5, 1)) == 5


async def test_the_reply_is_not_sent_before_those_of_earlier_commands(work):
    client = Client()
    reply = IncrementalReply(client, work.scan(0, 1), encode)
    assert client.stream is reply
    assert client.sent == []
    await client.detached()
    assert client.sent == [b"0"]


async def test_other_tasks_run_between_steps(work):
    client = Client()
    IncrementalReply(client, work.scan(20, 0.002), encode)
    taken = []
    while client.stream is not None:
        await asyncio.sleep(0)
        taken.append(work.steps)
    assert client.sent == [b"20"]
    assert set(taken) >= set(range(1, 20))


async def test_short_steps_are_taken_together(work):
    client = Client()
    reply = IncrementalReply(client, work.scan(50, 0.00001), encode)
    reply._step()
    assert client.sent == [b"50"]
    assert client.stream is None
    reply.lost()


async def test_the_scan_stops_when_the_client_is_lost(work):
    client = Client()
    reply = IncrementalReply(client, work.scan(1_000_000, 0.002), encode)
    while work.steps < 3:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)
    reply.resume()
    reply.lost()
    taken = work.steps
    await asyncio.sleep(0.02)
    assert work.steps == taken
    assert client.sent == []
