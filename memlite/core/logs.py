"""Log messages on stderr, as text or as one JSON object per line."""

import logging
import sys
import time
from typing import TYPE_CHECKING, Final

from memlite.core.log_limit import LimitedHandler, failure

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "configure",
    "event",
    "failure",
    "is_json",
    "level_for",
    "report_repeated",
    "write_end",
]

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_log: Final = logging.getLogger("memlite")
_handlers: Final[list[LimitedHandler]] = []  # the current handler, if any


def level_for(verbosity: int, named: str | None = None) -> int:
    """Return the log level.

    Args:
        verbosity: how often ``-v`` was given.
        named: the level's name, which takes precedence.
    """
    if named:
        return _LEVELS[named]
    return {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)


def event(name: str, **fields: object) -> dict[str, object]:
    """Return a logger's `extra` argument that gives a message a name; see `failure`.

    Args:
        name: a few words joined by underscores.
        fields: details of the message, for programs that read the log.
    """
    return {"event": name, "fields": fields}


class _TextFormatter(logging.Formatter):
    """The bare message, as memcached prints it; warnings and errors are prefixed."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        count = getattr(record, "count", 1)
        if count > 1:
            text += f" (and {count - 1} more like this in the last {record.seconds:g} s)"  # type: ignore[attr-defined]
        if record.levelno >= logging.WARNING:
            return f"memlite: {record.levelname.lower()}: {text}"
        return text


class _JsonFormatter(logging.Formatter):
    """One object for each message; docs/reference/logs.md lists the names."""

    def __init__(self) -> None:
        super().__init__()
        import orjson  # only needed for JSON

        self._dumps = orjson.dumps

    def format(self, record: logging.LogRecord) -> str:
        moment = time.gmtime(record.created)
        line: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("event", "error", "count", "seconds"):
            if hasattr(record, name):
                line[name] = getattr(record, name)
        line.update(getattr(record, "fields", {}))
        if record.exc_info and record.exc_info[0] is not None:
            line.setdefault("error", record.exc_info[0].__name__)
            line["exception"] = self.formatException(record.exc_info)
        try:
            return self._dumps(line, default=str).decode()
        except TypeError:  # the name of a file need not be text
            text = {name: _as_text(value) for name, value in line.items()}
            return self._dumps(text, default=str).decode()


def _as_text(value: object) -> object:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def configure(level: int, style: str) -> None:
    """Send messages of `level` and above to stderr.

    Args:
        level: a level of `logging`.
        style: ``text`` or ``json``.
    """
    handler = LimitedHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if style == "json" else _TextFormatter())
    _handlers[:] = [handler]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # libraries only report problems
    _log.setLevel(level)
    if style == "json":
        sys.excepthook = _log_crash


def _log_crash(
    kind: type[BaseException], error: BaseException, traceback: "TracebackType | None"
) -> None:
    _log.critical(
        "terminated by an error", exc_info=(kind, error, traceback), extra=event("crashed")
    )


def is_json() -> bool | None:
    """Return whether messages are JSON; None before `configure`."""
    return isinstance(_handlers[0].formatter, _JsonFormatter) if _handlers else None


def report_repeated(*, everything: bool = False) -> None:
    """Write the number of failures that were held back; call it about once a second.

    Args:
        everything: whether the program ends.
    """
    for handler in _handlers:
        handler.report(everything=everything)


def write_end(text: str, exit_code: int, *, json: bool) -> None:
    """Write why the program exits before it has started.

    Args:
        text: the reason, in one line.
        exit_code: the program's.
        json: whether to write an object.
    """
    line = f"memlite: {text}"
    if json:
        record = _log.makeRecord(
            _log.name, logging.ERROR, "", 0, text, (), None,
            extra=event("not_started", exit_code=exit_code),
        )  # fmt: skip
        line = _JsonFormatter().format(record)
    sys.stderr.write(f"{line}\n")
