"""``watch`` of a proxy: its slow requests, and the connections of its clients."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from memlite.core.clock import Clock
from memlite.proxy.admin import NOT_HERE
from memlite.server.admin.watchers import CONNEVENTS, FETCHERS, SLOW, Watchers, stream_named
from memlite.server.connections.register import Register
from memlite.server.interfaces import Client

if TYPE_CHECKING:
    from memlite.engine.observer import Observer
    from memlite.engine.prefixes import PrefixStats
    from memlite.engine.sizes import SizeClasses
    from memlite.telemetry.slow import SlowLog

__all__ = ["ProxyWatchers"]

_OFFERED: Final = frozenset((CONNEVENTS, SLOW))


class ProxyWatchers(Watchers):
    """Sends watchers the events of the proxy itself; events of items are left to the nodes.

    Args:
        clock: tells the time of an event.
        register: the open connections.
        slow: the slow log; None if there is none.
        buffer_bytes: bytes of lines that are kept for a watcher that does not read.
    """

    def __init__(
        self, clock: Clock, register: Register, slow: "SlowLog | None", buffer_bytes: int
    ) -> None:
        super().__init__(
            engine=_NoItems(),
            clock=clock,
            connections=register.connections,
            watch_commands=lambda watched: None,
            watch_connections=self._watch_register(register),
            watch_slow=None if slow is None else self._watch_log(slow),
            acting=lambda: -1,
            buffer_bytes=buffer_bytes,
        )

    def add(self, words: Sequence[bytes], client: Client) -> bytes:
        """Make a connection a watcher; see `Watchers`."""
        kinds = {stream_named(word.decode("latin-1")) for word in words} or {FETCHERS}
        if None not in kinds and not kinds <= _OFFERED:
            return NOT_HERE
        return super().add(words, client)

    def _watch_register(self, register: Register) -> Callable[[bool], None]:
        def watch(watched: bool) -> None:
            register.watcher = self if watched else None

        return watch

    def _watch_log(self, log: "SlowLog") -> Callable[[bool], None]:
        def watch(watched: bool) -> None:
            log.watcher = self.slow if watched else None

        return watch


class _NoItems:
    """An engine without items, and so without events."""

    cas_enabled = False
    prefixes: "PrefixStats | None" = None
    observer: "Observer | None" = None

    @property
    def sizes(self) -> "SizeClasses":
        """Refuse: only events of items have them."""
        raise NotImplementedError

    def observe(self, prefixes: "PrefixStats | None", observer: "Observer | None") -> None:
        """Do nothing."""
