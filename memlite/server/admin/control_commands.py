"""Commands that control the server: ``flush_all``, ``verbosity``, ``shutdown`` and others."""

import logging
import os
from collections.abc import Callable
from typing import Final, Protocol

from memlite.config import MEGABYTE, Config
from memlite.core.errors import ConfigError
from memlite.core.version import SERVER_VERSION
from memlite.memory import ItemTable
from memlite.protocol import replies
from memlite.protocol.numbers import signed, signed_32, unsigned
from memlite.server.admin.request import AdminRequest, CommandTable
from memlite.telemetry.counters import Counters

__all__ = ["ControlCommands", "RequestStop"]

_log = logging.getLogger("memlite")

_U32: Final = 2**32
_MAX_VERBOSITY: Final = 3
_LEAST_MEGABYTES: Final = 8
_MAX_MEGABYTES: Final = 1_000_000_000


class RequestStop(Protocol):
    """Asks the server to stop."""

    def __call__(self, *, graceful: bool = False) -> None:
        """Stop soon; `graceful` also waits for commands that have begun to arrive."""


class ControlCommands:
    """Carries out commands that change the server.

    Args:
        config: determines which of them are allowed.
        counters: count ``flush_all``.
        table: the items in memory, for ``cache_memlimit``.
        wake_sweeper: starts the eviction of items over the limit.
        flush: makes all items absent: now, or at the given exptime if that is positive.
        set_verbosity: sets the log level, 0 to 3.
        request_stop: asks the server to stop.
        refresh_certificates: reloads the TLS certificates, or raises ConfigError.
        advance_clock: moves the clock by a number of seconds, for tests (``debugtime``).
    """

    def __init__(
        self,
        *,
        config: Config,
        counters: Counters,
        table: ItemTable,
        wake_sweeper: Callable[[], None],
        flush: Callable[[int], None],
        set_verbosity: Callable[[int], None],
        request_stop: RequestStop,
        refresh_certificates: Callable[[], None],
        advance_clock: Callable[[int], None],
    ) -> None:
        self._config = config
        self._counters = counters
        self._table = table
        self._wake_sweeper = wake_sweeper
        self._set_verbosity = set_verbosity
        self._request_stop = request_stop
        self._refresh_certificates = refresh_certificates
        self._advance_clock = advance_clock
        self.flush = flush

    @property
    def commands(self) -> CommandTable:
        """The commands by their first word."""
        commands = {
            b"version": self._version,
            b"flush_all": self._flush_all,
            b"verbosity": self._verbosity,
            b"cache_memlimit": self._cache_memlimit,
            b"shutdown": self._shutdown,
            b"refresh_certs": self._refresh_certs,
        }
        if self._config.debug_commands:
            commands[b"debugtime"] = self._debugtime
        return commands

    @property
    def may_flush(self) -> bool:
        """Whether clients may flush (not with ``-F``)."""
        return not self._config.disable_flush_all

    def set_verbosity(self, level: int) -> None:
        """Set the log level; values above the highest level mean the highest."""
        self._set_verbosity(min(level, _MAX_VERBOSITY))

    def _version(self, request: AdminRequest) -> bytes:
        return b"VERSION %b\r\n" % SERVER_VERSION.encode()

    def _flush_all(self, request: AdminRequest) -> bytes:
        words = request.words
        self._counters.cmd_flush += 1
        if not self.may_flush:
            return b"CLIENT_ERROR flush_all not allowed\r\n"
        exptime: int | None = 0
        if len(words) != (2 if request.noreply else 1):
            exptime = signed_32(words[1])
        if exptime is None:
            return replies.INVALID_EXPTIME
        self.flush(exptime)
        return replies.OK

    def _verbosity(self, request: AdminRequest) -> bytes:
        level = _first_number(request)
        if level is None:
            return replies.BAD_FORMAT
        self.set_verbosity(level)
        return replies.OK

    def _cache_memlimit(self, request: AdminRequest) -> bytes:
        megabytes = _first_number(request)
        if megabytes is None:
            return replies.ERROR
        if megabytes < _LEAST_MEGABYTES:
            return b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"
        if megabytes > _MAX_MEGABYTES:
            return b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"
        if not self._table.can_take(megabytes * MEGABYTE):
            return b"MEMLIMIT_ADJUST_FAILED out of bounds or not adjustable\r\n"
        self._table.shrink(megabytes * MEGABYTE)
        self._wake_sweeper()
        _log.info("maxbytes adjusted to %dm", megabytes)
        return replies.OK

    def _shutdown(self, request: AdminRequest) -> bytes:
        if not self._config.enable_shutdown:
            # memcached sends the colon, and clients match it.
            return b"SERVER_ERROR: shutdown not enabled\r\n"
        mode = request.words[1:]
        if mode not in ([], [b"graceful"]):
            return b"CLIENT_ERROR invalid shutdown mode\r\n"
        request.client.close_reason = "shutdown"
        request.client.close()
        self._request_stop(graceful=bool(mode))
        return b""

    def _refresh_certs(self, request: AdminRequest) -> bytes:
        try:
            self._refresh_certificates()
        except ConfigError as error:
            return os.fsencode(f"{error}\r\n")
        return replies.OK

    def _debugtime(self, request: AdminRequest) -> bytes:
        words = request.words
        seconds = signed(words[1]) if len(words) > 1 else None
        if seconds is None:
            return replies.ERROR
        self._advance_clock(seconds)
        return replies.OK


def _first_number(request: AdminRequest) -> int | None:
    """Return the first argument, None if it is missing or not a 32-bit number."""
    words = request.words
    return unsigned(words[1], _U32) if len(words) > 1 else None
