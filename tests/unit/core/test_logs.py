"""Log messages: as text and as JSON, and failures at a limited rate."""

import gc
import io
import json
import logging
import weakref

import pytest

from memlite.core import logs
from memlite.core.log_limit import INTERVAL, LimitedHandler, failure
from memlite.core.logs import _JsonFormatter, _TextFormatter, event


class Log:
    """A logger of its own, on a clock that tests advance."""

    def __init__(self, formatter: logging.Formatter, name: str = "memlite.test") -> None:
        self.now = 100.0
        self.stream = io.StringIO()
        self.handler = LimitedHandler(self.stream, lambda: self.now)
        self.handler.setFormatter(formatter)
        self.logger = logging.Logger(name, logging.DEBUG)
        self.logger.addHandler(self.handler)

    def lines(self) -> list[str]:
        """Return the lines since the last call."""
        text = self.stream.getvalue()
        self.stream.seek(0)
        self.stream.truncate()
        return text.splitlines()

    def objects(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines()]


@pytest.fixture
def text() -> Log:
    return Log(_TextFormatter())


@pytest.fixture
def log() -> Log:
    return Log(_JsonFormatter())


def test_text_is_as_memcached_prints_it(text: Log) -> None:
    text.logger.info("server listening (%s)", "tcp:127.0.0.1:1")
    text.logger.warning("no %s", "room", extra=event("no_room", room=0))
    assert text.lines() == ["server listening (tcp:127.0.0.1:1)", "memlite: warning: no room"]


def test_the_first_failure_is_written_and_then_one_line_in_each_interval(text: Log) -> None:
    for number in range(1234):
        text.now += 0.004
        text.logger.error("failed: %d", number, extra=failure("broken"))
    assert text.lines() == ["memlite: error: failed: 0"]
    text.now = 100.0 + INTERVAL
    text.handler.report()
    assert text.lines() == []  # the first came 4 ms after 100
    text.now = 100.004 + INTERVAL
    text.handler.report()
    assert text.lines() == [
        "memlite: error: failed: 1233 (and 1232 more like this in the last 10 s)"
    ]
    text.handler.report()
    text.logger.error("failed again", extra=failure("broken"))
    assert text.lines() == []
    text.now += 2 * INTERVAL
    text.handler.report()
    assert text.lines() == ["memlite: error: failed again"]  # a single failure has no count


def test_after_a_quiet_interval_the_next_failure_is_written_at_once(text: Log) -> None:
    text.logger.error("one", extra=failure("broken"))
    text.now += INTERVAL
    text.handler.report()
    text.logger.error("two", extra=failure("broken"))
    assert text.lines() == ["memlite: error: one", "memlite: error: two"]


def test_without_reports_the_next_failure_brings_the_count(text: Log) -> None:
    for moment in (0.0, 1.0, 2.0, 12.5):
        text.now = 100.0 + moment
        text.logger.error("failed", extra=failure("broken"))
    assert text.lines() == [
        "memlite: error: failed",
        "memlite: error: failed (and 2 more like this in the last 12.5 s)",
    ]


def test_classes_do_not_hide_each_other(text: Log) -> None:
    for name in ("one", "two", "one", "two"):
        text.logger.error(name, extra=failure(name))
    text.logger.error("rare")
    text.logger.error("rare")
    assert text.lines() == [f"memlite: error: {name}" for name in ("one", "two", "rare", "rare")]


def test_closing_reports_messages_held_back(text: Log) -> None:
    for _ in range(3):
        text.logger.info("failed", extra=failure("broken"))
    text.now += 1
    text.handler.close()
    assert text.lines() == ["failed", "failed (and 1 more like this in the last 1 s)"]


def test_messages_of_libraries_are_limited_by_their_first_line() -> None:
    library = Log(_TextFormatter(), "asyncio")
    for number in range(100):
        library.logger.error("Task exception was never retrieved\nfuture: %d", number)
    library.logger.error("something else")
    library.logger.info("no problem")
    library.logger.info("no problem")
    assert library.lines() == [
        "memlite: error: Task exception was never retrieved",
        "future: 0",
        "memlite: error: something else",
        "no problem",
        "no problem",
    ]


def test_the_number_of_classes_is_bounded(text: Log) -> None:
    for number in range(1000):
        text.logger.error("failed", extra=failure(f"class_{number}"))
    assert len(text.lines()) == 201
    assert len(text.handler._classes) == 201
    text.now += INTERVAL
    text.handler.report()
    assert text.lines() == ["memlite: error: failed (and 798 more like this in the last 10 s)"]
    text.now += INTERVAL
    text.handler.report()
    assert not text.handler._classes


def test_messages_held_back_keep_no_objects(text: Log) -> None:
    class Big:
        def __str__(self) -> str:
            return "big"

    for _ in range(2):
        big = Big()
        seen = weakref.ref(big)
        try:
            raise ValueError(big)
        except ValueError:
            text.logger.exception("failed with %s", big, extra=failure("broken"))
        del big
    gc.collect()
    assert seen() is None
    text.lines()
    text.handler.close()
    assert text.lines() == ["memlite: error: failed with big: ValueError: big"]


def test_names_of_json(log: Log) -> None:
    log.logger.info("server %s", "listening")
    log.logger.warning("no room", extra=event("no_room", room=0, file="/x"))
    plain, named = log.objects()
    assert list(plain) == ["time", "level", "logger", "message"]
    assert plain["message"] == "server listening"
    assert {name: named[name] for name in named if name != "time"} == {
        "level": "warning",
        "logger": "memlite.test",
        "message": "no room",
        "event": "no_room",
        "room": 0,
        "file": "/x",
    }


def test_times_of_json(log: Log) -> None:
    record = log.logger.makeRecord("memlite", logging.INFO, "", 0, "text", (), None)
    record.created, record.msecs = 1_764_134_757.0129, 12.9
    log.handler.handle(record)
    assert log.objects()[0]["time"] == "2025-11-26T05:25:57.012Z"


def test_failures_in_json(log: Log) -> None:
    for _ in range(3):
        try:
            raise ValueError("why")
        except ValueError:
            log.logger.exception("failed", extra=failure("broken", client="tcp:::1"))
    log.now += INTERVAL
    log.handler.report()
    first, others = log.objects()
    assert (first["event"], first["error"], first["client"]) == ("broken", "ValueError", "tcp:::1")
    assert str(first["exception"]).endswith("ValueError: why")
    assert "count" not in first
    assert (others["event"], others["error"], others["client"]) == (
        "broken", "ValueError", "tcp:::1",
    )  # fmt: skip
    assert (others["count"], others["seconds"]) == (2, 10.0)
    assert others["message"] == "failed: ValueError: why"
    assert "exception" not in others


def test_bytes_that_are_not_text_are_escaped(log: Log) -> None:
    log.logger.error("no file %s", "\udcff", extra=event("no_file", file="a\udcff\n"))
    (found,) = log.objects()
    assert (found["message"], found["file"]) == ("no file \\udcff", "a\\udcff\n")


def test_why_a_program_ends(capsys: pytest.CaptureFixture[str]) -> None:
    logs.write_end("port 1: in use", 71, json=False)
    logs.write_end("port 1: in use", 71, json=True)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "memlite: port 1: in use"
    found = json.loads(second)
    assert (found["level"], found["event"], found["exit_code"]) == ("error", "not_started", 71)
    assert found["message"] == "port 1: in use"
