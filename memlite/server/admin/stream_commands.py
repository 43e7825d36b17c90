"""``lru_crawler`` and ``watch``: commands that send dumps or events to a connection."""

from collections.abc import Callable
from typing import Final, Protocol

from memlite.protocol import replies
from memlite.protocol.numbers import unsigned
from memlite.server.admin.dumps import BAD_CLASS, BUSY, Dumps, parse_classes
from memlite.server.admin.request import PIPELINED, AdminRequest, CommandTable
from memlite.server.admin.watchers import Watchers
from memlite.server.interfaces import Client

__all__ = ["CrawlerEngine", "StreamCommands"]

_U32: Final = 2**32
_MAX_MICROSECONDS: Final = 1_000_000


class CrawlerEngine(Protocol):
    """An engine that searches for expired items; see `memlite.engine.MemoryEngine`.

    Attributes:
        crawls: whether it does so periodically on its own.
    """

    crawls: bool

    @property
    def crawling(self) -> bool:
        """Whether a search is in progress."""

    def crawl(self) -> None:
        """Begin a search."""


class StreamCommands:
    """Carries out ``lru_crawler`` and ``watch``.

    Args:
        dumps: sends dumps of all items.
        watchers: sends events.
        engine: searches for expired items.
        wake_sweeper: continues the engine's search in the background.
        may_dump: whether clients may see keys (not with ``-X``).
        may_watch: whether clients may watch (not with ``-W``).
        on_enable: called when the crawler is turned on or off.
    """

    def __init__(
        self,
        *,
        dumps: Dumps,
        watchers: Watchers,
        engine: CrawlerEngine,
        wake_sweeper: Callable[[], None],
        may_dump: bool,
        may_watch: bool,
        on_enable: Callable[[bool], None] = lambda enabled: None,
    ) -> None:
        self._dumps = dumps
        self._watchers = watchers
        self._engine = engine
        self._wake_sweeper = wake_sweeper
        self._may_dump = may_dump
        self._may_watch = may_watch
        self._on_enable = on_enable

    @property
    def commands(self) -> CommandTable:
        """The commands by their first word."""
        return {b"lru_crawler": self._lru_crawler, b"watch": self._watch}

    def _watch(self, request: AdminRequest) -> bytes:
        if not self._may_watch:
            return b"CLIENT_ERROR watch commands not allowed\r\n"
        if request.client.pipelined:
            return PIPELINED % b"watch"
        return self._watchers.add(request.words[1:], request.client)

    def _lru_crawler(self, request: AdminRequest) -> bytes:
        match request.words[1:]:
            case [b"enable"]:
                if self._dumps.enabled:
                    return b"ERROR failed to start lru crawler thread\r\n"
                self._enable(True)
                return replies.OK
            case [b"disable"]:
                self._enable(False)
                return replies.OK
            case [b"crawl" | b"metadump" | b"mgdump", _] if not self._dumps.enabled:
                return b"CLIENT_ERROR lru crawler disabled\r\n"
            case [b"metadump" | b"mgdump" as command, which]:
                return self._dump(command, which, request.client)
            case [b"crawl", which]:
                return self._crawl(which)
            # The last two tune memcached's crawler thread. They are accepted without any effect.
            case [b"tocrawl", count]:
                return replies.BAD_FORMAT if unsigned(count, _U32) is None else replies.OK
            case [b"sleep", text]:
                microseconds = unsigned(text, _U32)
                if microseconds is None:
                    return replies.BAD_FORMAT
                if microseconds > _MAX_MICROSECONDS:
                    return b"CLIENT_ERROR sleep must be one second or less\r\n"
                return replies.OK
        return replies.ERROR

    def _enable(self, enabled: bool) -> None:
        self._dumps.enabled = self._engine.crawls = enabled
        self._on_enable(enabled)

    def _dump(self, command: bytes, which: bytes, client: Client) -> bytes:
        if not self._may_dump:
            what = b"metadump" if command == b"metadump" else b"key dump"
            return b"ERROR %b not allowed\r\n" % what
        if client.pipelined:
            return PIPELINED % command
        return self._dumps.start(command, which, client)

    def _crawl(self, which: bytes) -> bytes:
        if which != b"all" and not parse_classes(which):
            return BAD_CLASS
        if self._dumps.running or self._engine.crawling:
            return BUSY
        self._engine.crawl()
        self._wake_sweeper()
        return replies.OK
