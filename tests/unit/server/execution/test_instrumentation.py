"""Reads that are sampled or traced: their commands are carried out as usual."""

import logging

import pytest

from memlite.protocol import text_table
from memlite.server.execution.instrumentation import Instrumentation
from memlite.telemetry.counters import Counters
from memlite.telemetry.sampling import Sampler


class Client:
    number = 5
    peer = "tcp:127.0.0.1:50000"


CLIENT = Client()


class Executor:
    """Records commands; has an item for only one key."""

    def __init__(self):
        self.calls = []

    def try_get(self, line):
        self.calls.append(("try_get", line))
        return line == b"get there\r\n"

    def execute_observed(self, command, arguments, observer):
        self.calls.append((command, arguments))
        observer.ready()
        observer.replied([b"STORED\r\n"])


@pytest.fixture
def seen():
    return []


@pytest.fixture
def sampler(seen):
    return Sampler(seen.append, 1)


@pytest.fixture
def instrumentation(sampler):
    return Instrumentation(Counters(), sampler)


CALLS = [
    ("set", (b"k", 0, 0, b"v", False), text_table.SET),
    ("set_framed", (b"k", 0, b"VALUE k 0 1\r\nv\r\nEND\r\n", False), text_table.SET_FRAMED),
    ("reject", (b"ERROR\r\n", False), text_table.REJECT),
]


@pytest.mark.parametrize(("method", "arguments", "command"), CALLS)
def test_every_handler_method_is_sampled(instrumentation, sampler, method, arguments, command):
    instrumentation._counters.until_slow_sample = 0
    executor = Executor()
    handler = instrumentation.observe(executor, CLIENT)
    getattr(handler, method)(*arguments)
    assert executor.calls == [(command, arguments)]
    assert sampler.histograms[command.latency].count == 1


def test_a_read_that_is_not_sampled_goes_straight_to_the_executor(instrumentation):
    instrumentation._counters.until_slow_sample = 2
    instrumentation.watch_commands(True)
    executor = Executor()
    assert instrumentation.observe(executor, CLIENT) is executor
    assert instrumentation.client == 5


def test_only_hits_are_recorded_as_gets(instrumentation, sampler, seen):
    instrumentation._counters.until_slow_sample = 0
    handler = instrumentation.observe(Executor(), CLIENT)
    assert handler.try_get(b"get absent\r\n") is False
    assert sampler.histograms["get"].count == 0
    assert handler.try_get(b"get there\r\n") is True
    assert sampler.histograms["get"].count == 1
    assert seen == [(b"there",)]


def test_tracing_sees_every_command_and_its_reply(instrumentation, caplog):
    caplog.set_level(logging.DEBUG, "memlite.trace")
    instrumentation.watch_commands(False)  # reads the log level again
    assert instrumentation.active
    executor = Executor()
    handler = instrumentation.observe(executor, CLIENT)
    assert handler.try_get(b"get there\r\n") is False  # left to be executed as a get
    assert executor.calls == []
    handler.set(b"k", 0, 0, b"value", True)
    handler.quit()
    assert [record.getMessage() for record in caplog.records] == [
        "<5 set k 0 0 5 noreply",
        ">5 STORED",
        "<5 quit",
        ">5 STORED",
    ]


class Times:
    """Records the times of one client's commands."""

    def __init__(self, client):
        self.client = client
        self.taken = []
        made.append(self)

    def record(self, command, arguments, nanoseconds):
        assert nanoseconds >= 0
        self.taken.append((command, command.keys(arguments)))


made = []


@pytest.mark.parametrize("waits", [False, True])
def test_with_a_slow_log_every_parsed_read_is_timed(sampler, waits):
    made.clear()
    one = Instrumentation(Counters(), sampler, slow=Times, fast_path_waits=waits)
    assert one.active
    assert one.closes_fast_path is waits
    one._counters.until_slow_sample = 2
    handler = one.observe(Executor(), CLIENT)
    assert handler.try_get(b"get there\r\n") is True
    handler.set(b"k", 0, 0, b"value", True)
    (times,) = made
    assert times.client == CLIENT.peer
    assert [(command.name, list(keys)) for command, keys in times.taken] == [
        ("get", [b"there"]),
        ("set", [b"k"]),
    ]
    assert sampler.histograms["get"].count == 0  # not one of the samples
    assert one.observe(Executor(), CLIENT).try_get(b"get there\r\n")
    assert len(made) == 1  # one per connection, until it is lost
    one.forget(CLIENT)
    assert one.observe(Executor(), CLIENT).try_get(b"get there\r\n")
    assert len(made) == 2
