"""Log messages on stderr, as text or as one JSON object per line."""

import logging
import sys
import time

__all__ = ["configure", "level_for"]

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def level_for(verbosity: int, named: str | None = None) -> int:
    """Return the log level.

    Args:
        verbosity: how often ``-v`` was given.
        named: the level's name, which takes precedence.
    """
    if named:
        return _LEVELS[named]
    return {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)


class _TextFormatter(logging.Formatter):
    """The bare message, as memcached prints it; warnings and errors are prefixed."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.levelno >= logging.WARNING:
            return f"memlite: {record.levelname.lower()}: {text}"
        return text


class _JsonFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__()
        import orjson  # only needed for JSON

        self._dumps = orjson.dumps

    def format(self, record: logging.LogRecord) -> str:
        moment = time.gmtime(record.created)
        line = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return self._dumps(line, default=str).decode()


def configure(level: int, style: str) -> None:
    """Send messages of `level` and above to stderr.

    Args:
        level: a level of `logging`.
        style: ``text`` or ``json``.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if style == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # libraries only report problems
    logging.getLogger("memlite").setLevel(level)
