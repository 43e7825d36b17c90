"""Commands that are not about keys: the text protocol's, and what others have of them."""

import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from memlite import __version__
from memlite.config import MEGABYTE
from memlite.errors import ConfigError
from memlite.protocol import replies
from memlite.protocol.numbers import signed, signed_32, unsigned
from memlite.server import statistics
from memlite.server.dumps import BAD_CLASS, BUSY, parse_classes
from memlite.server.gathering import Gathering

if TYPE_CHECKING:
    from memlite.server.connection import Connection
    from memlite.server.server import Server

__all__ = ["Admin"]

_log = logging.getLogger("memlite")
_U32 = 2**32
_MAX_VERBOSITY = 3
_NOTHING = b""
_PIPELINED = b"ERROR cannot pipeline other commands before %b\r\n"
_BAD_LINE = b"CLIENT_ERROR bad command line\r\n"
_TOO_MANY_ITEMS = b"SERVER_ERROR too many items for a datagram; ask over TCP\r\n"
# Items that are looked at in one go, in some milliseconds at most.
_SCANNED_AT_ONCE = 1000

_Words = list[bytes]


class Admin:
    """Carries out commands such as stats, flush_all and verbosity.

    Args:
        server: whose state the commands show and change.
    """

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._commands: dict[bytes, Callable[[_Words, bool, Connection], bytes]] = {
            b"stats": self._stats,
            b"version": self._version,
            b"flush_all": self._flush_all,
            b"verbosity": self._verbosity,
            b"cache_memlimit": self._cache_memlimit,
            b"shutdown": self._shutdown,
            b"lru_crawler": self._lru_crawler,
            b"watch": self._watch,
            b"slabs": self._slabs,
            b"lru": self._lru,
            b"refresh_certs": self._refresh_certs,
        }
        if server.config.debug_commands:
            self._commands[b"debugtime"] = self._debugtime

    def execute(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        """Carry out a command.

        Args:
            words: the command and its arguments.
            noreply: whether its last word asks for silence.
            asking: the connection it came from.

        Returns:
            The reply, empty where there is none.
        """
        command = self._commands.get(words[0])
        return command(words, noreply, asking) if command else replies.ERROR

    # What protocols have in common

    @property
    def authenticates(self) -> bool:
        """Whether clients of the binary protocol have to say who they are (``-S``)."""
        return self._server.config.enable_sasl

    @property
    def flushes(self) -> bool:
        """Whether clients may flush (not with ``-F``)."""
        return not self._server.config.disable_flush_all

    def flush(self, exptime: int) -> None:
        """Make all items absent, now or, for a positive `exptime`, then."""
        self._server.engine.flush_all(exptime)
        self._server.schedule_flush()

    def set_verbosity(self, level: int) -> None:
        """Log more or less from now on."""
        self._server.set_verbosity(min(level, _MAX_VERBOSITY))

    def group(self, name: bytes, asking: "Connection") -> statistics.Pairs | None:
        """Return a group of statistics, the general ones for no name, or None if there is none."""
        if not name:
            return statistics.general(self._server)
        if name == b"conns":
            return statistics.connections(self._server, asking)
        group = statistics.GROUPS.get(name)
        return None if group is None else group(self._server)

    def answer_scan(
        self,
        parts: Iterator[Any | None],
        spell: Callable[[list[Any]], bytes],
        asking: "Connection",
    ) -> bytes | None:
        """Return the answer to what looks at every item; nothing if it will follow.

        Args:
            parts: what the answer is made of, None where others may have a turn.
            spell: makes the answer.
            asking: who has asked.

        Returns:
            None where there are too many items for who cannot wait (UDP).
        """
        if len(self._server.table) <= _SCANNED_AT_ONCE:
            return spell([part for part in parts if part is not None])
        if not asking.can_wait:
            return None
        Gathering(self._server, asking, parts, spell)
        return b""

    def scan(self, name: bytes) -> statistics.Scan | None:
        """Return a group of statistics that looks at every item, or None if there is none."""
        scan = statistics.SCANS.get(name)
        return None if scan is None else scan(self._server)

    def reset(self) -> None:
        """Set the statistics to zero."""
        self._server.reset_statistics()

    @property
    def may_dump(self) -> bool:
        """Whether clients may see keys, or parts of them (not with ``-X``)."""
        return not self._server.config.disable_dumping

    def detail(self, what: bytes) -> bytes | None:
        """Begin (``on``) or end (``off``) counting by prefix, or return the counters (``dump``).

        Returns:
            The counters' lines, empty unless they were asked for; None if it was something else.
        """
        server = self._server
        if what == b"dump":
            return server.prefixes.dump()
        if what not in (b"on", b"off"):
            return None
        server.engine.observe(server.prefixes if what == b"on" else None, server.engine.observer)
        return _NOTHING

    # The text protocol's commands

    def _version(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        return b"VERSION %b\r\n" % __version__.encode()

    def _flush_all(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        self._server.counters.cmd_flush += 1
        if not self.flushes:
            return b"CLIENT_ERROR flush_all not allowed\r\n"
        exptime: int | None = 0
        if len(words) != (2 if noreply else 1):
            exptime = signed_32(words[1])
        if exptime is None:
            return replies.INVALID_EXPTIME
        self.flush(exptime)
        return replies.OK

    def _verbosity(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        level = unsigned(words[1], _U32) if len(words) > 1 else None
        if level is None:
            return replies.BAD_FORMAT
        self.set_verbosity(level)
        return replies.OK

    def _cache_memlimit(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        megabytes = unsigned(words[1], _U32) if len(words) > 1 else None
        if megabytes is None:
            return replies.ERROR
        if megabytes < 8:
            return b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"
        if megabytes > 1_000_000_000:
            return b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"
        self._server.table.shrink(megabytes * MEGABYTE)
        self._server.sweeper.wake()
        _log.info("maxbytes adjusted to %dm", megabytes)
        return replies.OK

    def _shutdown(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        if not self._server.config.enable_shutdown:
            # The colon is memcached's, and clients match it.
            return b"SERVER_ERROR: shutdown not enabled\r\n"
        if len(words) == 1:
            asking.close_reason = "shutdown"
            asking.close()
            self._server.request_stop()
        elif words[1:] == [b"graceful"]:
            asking.close_reason = "shutdown"
            asking.close()
            self._server.request_stop(graceful=True)
        else:
            return b"CLIENT_ERROR invalid shutdown mode\r\n"
        return _NOTHING

    def _refresh_certs(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        try:
            self._server.refresh_certificates()
        except ConfigError as error:
            return os.fsencode(f"{error}\r\n")
        return replies.OK

    def _watch(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        if self._server.config.disable_watch:
            return b"CLIENT_ERROR watch commands not allowed\r\n"
        if asking.pipelined:
            return _PIPELINED % b"watch"
        return self._server.watchers.add(words[1:], asking)

    def _crawl(self, which: bytes) -> bytes:
        if which != b"all" and not parse_classes(which):
            return BAD_CLASS
        server = self._server
        if server.dumps.running or server.engine.crawling:
            return BUSY
        server.engine.crawl()
        server.sweeper.wake()
        return replies.OK

    def _enable_crawler(self, enabled: bool) -> None:
        self._server.dumps.enabled = self._server.engine.crawls = enabled

    def _dump(self, command: bytes, which: bytes, asking: "Connection") -> bytes:
        if self._server.config.disable_dumping:
            what = b"metadump" if command == b"metadump" else b"key dump"
            return b"ERROR %b not allowed\r\n" % what
        if asking.pipelined:
            return _PIPELINED % command
        return self._server.dumps.start(command, which, asking)

    def _debugtime(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        seconds = signed(words[1]) if len(words) > 1 else None
        if seconds is None:
            return replies.ERROR
        self._server.advance_clock(seconds)
        return replies.OK

    def _lru_crawler(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        dumps = self._server.dumps
        match words[1:]:
            case [b"enable"]:
                if dumps.enabled:
                    return b"ERROR failed to start lru crawler thread\r\n"
                self._enable_crawler(True)
                return replies.OK
            case [b"disable"]:
                self._enable_crawler(False)
                return replies.OK
            case [b"crawl" | b"metadump" | b"mgdump", _] if not dumps.enabled:
                return b"CLIENT_ERROR lru crawler disabled\r\n"
            case [b"metadump" | b"mgdump" as command, which]:
                return self._dump(command, which, asking)
            case [b"crawl", which]:
                return self._crawl(which)
            case [b"tocrawl", count]:
                # This and the rest tune what memlite has not; accepted for scripts of memcached's.
                return replies.BAD_FORMAT if unsigned(count, _U32) is None else replies.OK
            case [b"sleep", text]:
                microseconds = unsigned(text, _U32)
                if microseconds is None:
                    return replies.BAD_FORMAT
                if microseconds > 1_000_000:
                    return b"CLIENT_ERROR sleep must be one second or less\r\n"
                return replies.OK
        return replies.ERROR

    # memcached's tuning of what memlite has not: accepted, so that scripts run unchanged.

    def _slabs(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        match words[1:]:
            case [b"reassign", source, destination]:
                if signed(source) is None or signed(destination) is None:
                    return replies.BAD_FORMAT
                return b"CLIENT_ERROR slab reassignment disabled\r\n"
            case [b"automove", mode, *_]:
                level = unsigned(mode, _U32)
                if level is None:
                    return replies.BAD_FORMAT
                return replies.OK if level <= 2 else replies.ERROR
        return replies.ERROR

    def _lru(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        match words[1:]:
            case [b"mode", b"flat" | b"segmented"]:
                return replies.OK
            case [b"temp_ttl", ttl] if signed(ttl) is not None:
                return replies.OK
            case [b"tune", hot, warm, _, _] if None not in (unsigned(hot, 81), unsigned(warm, 81)):
                return replies.OK
        return replies.ERROR

    # stats

    def _stats(self, words: _Words, noreply: bool, asking: "Connection") -> bytes:
        name = words[1] if len(words) > 1 else b""
        pairs = self.group(name, asking)
        if pairs is not None:
            return replies.stat_lines(pairs)
        scan = self.scan(name)
        if scan is not None:
            answer = self.answer_scan(scan, replies.stat_lines, asking)
            return _TOO_MANY_ITEMS if answer is None else answer
        match words[1:]:
            case [b"reset", *_]:
                self.reset()
                return replies.RESET
            case [b"detail", *rest]:
                return self._detail(rest[0] if rest else b"")
            case [b"hotkeys", *_]:
                if not self.may_dump:
                    return b"CLIENT_ERROR stats hotkeys not allowed\r\n"
                return replies.stat_lines(self._server.hotkeys.report())
            case [b"cachedump", *rest]:
                return self._cachedump(rest, asking)
        return replies.ERROR

    def _detail(self, what: bytes) -> bytes:
        if not self.may_dump:
            return b"CLIENT_ERROR stats detail not allowed\r\n"
        dump = self.detail(what)
        if dump is None:
            return b"CLIENT_ERROR usage: stats detail on|off|dump\r\n"
        return dump or replies.OK

    def _cachedump(self, arguments: _Words, asking: "Connection") -> bytes:
        if not self.may_dump:
            return b"CLIENT_ERROR stats cachedump not allowed\r\n"
        if len(arguments) < 2:
            return _BAD_LINE
        class_id = unsigned(arguments[0], _U32)
        limit = unsigned(arguments[1], _U32)
        if class_id is None or limit is None:
            return replies.BAD_FORMAT
        if class_id >= 64:
            return b"CLIENT_ERROR Illegal slab id\r\n"
        lines = statistics.cachedump(self._server, class_id, limit)
        answer = self.answer_scan(lines, lambda found: b"".join([*found, replies.END]), asking)
        return _TOO_MANY_ITEMS if answer is None else answer
