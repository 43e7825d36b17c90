"""The exporting thread: its queue is bounded, and failures are logged once a minute."""

import logging
import threading
from collections.abc import Sequence

import pytest

from memlite.server.otlp.worker import MAX_SPANS, Worker
from memlite.telemetry.snapshot import Snapshot
from memlite.telemetry.spans import Span, SpanName
from tests.support.waiting import wait_until
from tests.unit.telemetry.samples import snapshot

SPAN = Span("get", SpanName(1, 2), None, "server", 1, 2, {})


class Receiver:
    def __init__(self) -> None:
        self.trouble = ""
        self.snapshots: list[Snapshot] = []
        self.spans = 0
        self.attempts = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def send_metrics(self, snapshot: Snapshot) -> str:
        self.attempts += 1
        self.go_on.wait()
        if not self.trouble:
            self.snapshots.append(snapshot)
        return self.trouble

    def send_spans(self, spans: Sequence[Span]) -> str:
        self.go_on.wait()
        if not self.trouble:
            self.spans += len(spans)
        return self.trouble

    def close(self) -> None:
        self.go_on.set()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "memlite"]


def test_pending_data_is_exported_at_the_end() -> None:
    receiver = Receiver()
    worker = Worker(receiver)
    worker.start()
    last = snapshot()
    worker.put_snapshot(last)
    for _ in range(600):
        worker.put_span(SPAN)
    worker.stop()
    assert receiver.snapshots[-1] is last
    assert receiver.spans == 600
    assert worker.dropped == 0


def test_a_worker_that_never_started_can_be_stopped() -> None:
    Worker(Receiver()).stop()


def test_the_queue_for_a_hanging_receiver_is_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver = Receiver()
    receiver.go_on.clear()
    worker = Worker(receiver)
    worker.start()
    worker.put_snapshot(snapshot())
    assert wait_until(lambda: receiver.attempts == 1)
    for _ in range(MAX_SPANS + 10):
        worker.put_span(SPAN)
    assert worker.dropped == 10
    last = snapshot()
    worker.put_snapshot(snapshot())
    worker.put_snapshot(last)  # replaces the previous one
    assert ["is not responding" in line for line in lines(caplog)] == [True]
    receiver.go_on.set()
    assert wait_until(lambda: receiver.spans == MAX_SPANS)
    worker.stop()
    assert [one is last for one in receiver.snapshots] == [False, True]


def test_failures_are_logged_once_a_minute_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    receiver, clock = Receiver(), Clock()
    receiver.trouble = "refused"
    worker = Worker(receiver, clock)
    caplog.set_level(logging.WARNING, "memlite")
    worker.start()

    def export() -> None:
        before = receiver.attempts
        worker.put_snapshot(snapshot())
        assert wait_until(lambda: receiver.attempts > before)

    for _ in range(5):
        export()
    assert wait_until(lambda: len(lines(caplog)) == 1)
    assert lines(caplog) == ["--otlp: exports failed: 1; spans lost so far: 0; refused"]
    worker.put_span(SPAN)
    clock.now += 61
    export()
    assert wait_until(lambda: len(lines(caplog)) == 2)
    assert "exports failed: 5" in lines(caplog)[1] or "exports failed: 6" in lines(caplog)[1]
    assert wait_until(lambda: worker.dropped == 1)
    receiver.trouble = ""
    export()
    assert wait_until(lambda: len(lines(caplog)) == 3)
    assert lines(caplog)[2] == "--otlp: exports succeed again; spans lost so far: 1"
    receiver.trouble = "refused"
    export()
    worker.stop()
    assert len(lines(caplog)) == 3
