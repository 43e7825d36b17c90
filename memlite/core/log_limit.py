"""Rate limiting of log messages: at most one line per class of failures and interval."""

import copy
import logging
import time
from collections.abc import Callable
from typing import Final, TextIO

__all__ = ["INTERVAL", "LimitedHandler", "failure"]

INTERVAL: Final = 10.0
"""Seconds per line for a class of failures."""

_MAX_CLASSES: Final = 200
_OTHERS: Final = "others"
_MAX_NAME_LENGTH: Final = 200


def failure(event: str, **fields: object) -> dict[str, object]:
    """Return a logger's `extra` argument that assigns a message to a class of failures.

    Use it for failures that may happen with each request, connection or attempt: the first message
    of a class is written, and then one every `INTERVAL` seconds, with the number of the others.

    Args:
        event: the name of the class, a few words joined by underscores.
        fields: details of the message, for programs that read the log.
    """
    return {"event": event, "repeats": True, "fields": fields}


class _Failures:
    """A class of failures.

    Attributes:
        since: when the last line was written, in seconds.
        count: how many messages have been held back since.
        last: the last message held back.
    """

    __slots__ = ("count", "last", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.last: logging.LogRecord | None = None


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes messages to a stream, limiting the rate of each class of failures.

    Call `report` from time to time, or messages held back are written only at the end.

    Args:
        stream: where to write.
        clock: returns seconds, never decreasing.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._classes: dict[str, _Failures] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message, or hold it back."""
        name = _class_of(record)
        if name is None:
            super().emit(record)
            return
        now = self._clock()
        if name not in self._classes and len(self._classes) >= _MAX_CLASSES:
            name = _OTHERS
        found = self._classes.get(name)
        if found is None:
            self._classes[name] = _Failures(now)
            super().emit(record)
            return
        found.count += 1
        found.last = _light(record)
        if now - found.since >= INTERVAL:
            self._write(found, now)

    def report(self, *, everything: bool = False) -> None:
        """Write one message for each class with messages held back for long enough.

        Args:
            everything: whether to write all of them, however recent.
        """
        if not self._classes:
            return
        self.acquire()
        try:
            now = self._clock()
            for name, found in list(self._classes.items()):
                if now - found.since < INTERVAL and not everything:
                    continue
                if found.count:
                    self._write(found, now)
                else:
                    del self._classes[name]
        finally:
            self.release()

    def close(self) -> None:
        """Write the messages held back."""
        self.report(everything=True)
        super().close()

    def _write(self, found: _Failures, now: float) -> None:
        record, found.last = found.last, None
        if record is not None:
            record.count = found.count
            record.seconds = round(now - found.since, 1)
            found.count, found.since = 0, now
            super().emit(record)


def _class_of(record: logging.LogRecord) -> str | None:
    """Return the class of failures that a message belongs to; None for none."""
    event = getattr(record, "event", None)
    if event is not None:
        return str(event) if getattr(record, "repeats", False) else None
    if record.name.partition(".")[0] == "memlite" or record.levelno < logging.WARNING:
        return None
    # A library's message: the class can only be guessed.
    return f"{record.name}: {record.getMessage().partition(chr(10))[0]}"[:_MAX_NAME_LENGTH]


def _light(record: logging.LogRecord) -> logging.LogRecord:
    """Return a message without references that would keep a connection's objects alive."""
    light = copy.copy(record)
    light.msg, light.args = record.getMessage(), None
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        name = type(error).__name__
        light.msg = f"{light.msg}: {name}: {error}"
        light.__dict__["error"] = name
    light.exc_info = light.exc_text = None
    return light
