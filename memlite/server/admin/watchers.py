"""``watch``: connections that receive a line for each event."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from memlite.core.clock import Clock
from memlite.core.uris import uri_encoded
from memlite.memory import Item
from memlite.protocol import replies
from memlite.protocol.limits import item_total
from memlite.server.admin.request import NO_SLOW_LOG
from memlite.server.interfaces import Client, ObservableEngine

if TYPE_CHECKING:
    from memlite.telemetry.slow import SlowCommand  # for servers with --slow-log

__all__ = [
    "CONNEVENTS",
    "EVICTIONS",
    "FETCHERS",
    "SLOW",
    "STREAMS",
    "Watcher",
    "Watchers",
    "stream_named",
]

EVICTIONS, FETCHERS, _MUTATIONS = "evictions", "fetchers", "mutations"
CONNEVENTS, _DELETIONS = "connevents", "deletions"
SLOW = "slow"

# In memcached's order, which determines how abbreviations are resolved; the last one is specific to
# memlite. Streams without a constant above have no events: memlite has no proxy, slabs or LRU
# threads, and memcached itself has no events for rawcmds.
STREAMS: Final = (
    "rawcmds", EVICTIONS, FETCHERS, _MUTATIONS, "sysevents", CONNEVENTS,
    "proxyreqs", "proxyevents", "proxyuser", _DELETIONS, SLOW,
)  # fmt: skip
_OF_COMMANDS: Final = (FETCHERS, _MUTATIONS, _DELETIONS)
_NOT_OF_ENGINE: Final = frozenset((CONNEVENTS, SLOW))
_AT_MOST: Final = 20
# How long lines are batched before they are sent, in seconds: a write for each would cost more than
# the line itself.
_FLUSH_SECONDS: Final = 0.01
_U32: Final = 2**32


class Watchers:
    """Sends a line for each event to the connections that subscribed to its kind.

    Implements `memlite.engine.Observer`. Its owner reports connections, with `opened` and `closed`.

    Args:
        engine: reports events about items while there are watchers.
        clock: tells the time of an event.
        connections: the open connections.
        watch_commands: called with whether commands are watched, whenever that may have changed.
        watch_connections: likewise for connections.
        watch_slow: likewise for slow commands; None without a slow log.
        acting: returns the file descriptor of the connection whose command is being carried out,
            -1 if the connection is closed.
        buffer_bytes: bytes of lines that are kept for a watcher that does not read.

    Attributes:
        wants_commands: whether commands are watched.
        written: events logged, each counted once.
        sent: lines queued for watchers.
        skipped: lines dropped because a watcher had not read the previous ones.
    """

    def __init__(
        self,
        *,
        engine: ObservableEngine,
        clock: Clock,
        connections: Collection[Client],
        watch_commands: Callable[[bool], None],
        watch_connections: Callable[[bool], None],
        watch_slow: Callable[[bool], None] | None,
        acting: Callable[[], int],
        buffer_bytes: int,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._connections = connections
        self._watch_commands = watch_commands
        self._watch_connections = watch_connections
        self._watch_slow = watch_slow
        self._acting = acting
        self._buffer_bytes = buffer_bytes
        self._watchers: list[Watcher] = []
        self._watchers_of: dict[str, list[Watcher]] = {}
        self._flush_handle: asyncio.TimerHandle | None = None
        # Addresses and file descriptors, kept while connections are watched: a closed socket no
        # longer knows them.
        self._endpoints: dict[Client, tuple[str, int]] = {}
        self._event_id = 0
        self.wants_commands = False
        self.reset()

    def __len__(self) -> int:
        return len(self._watchers)

    def reset(self) -> None:
        """Reset the counts (``stats reset``)."""
        self.written = self.sent = self.skipped = 0

    # Adding and removing watchers

    def add(self, words: Sequence[bytes], client: Client) -> bytes:
        """Make a connection a watcher.

        Args:
            words: the arguments of ``watch``.
            client: the connection.

        Returns:
            The reply; empty if the connection is now a watcher, to which OK is sent first.
        """
        kinds = [stream_named(word.decode("latin-1")) for word in words] or [FETCHERS]
        if None in kinds:
            return replies.ERROR
        if SLOW in kinds and self._watch_slow is None:
            return NO_SLOW_LOG
        if self._count() >= _AT_MOST:
            return b"WATCHER_TOO_MANY log watcher limit reached\r\n"
        watcher = Watcher(
            client, {kind for kind in kinds if kind}, self._buffer_bytes, self._remove
        )
        self._watchers.append(watcher)
        client.attach(watcher)
        watcher.put(replies.OK)
        self._flush_soon()
        self._update_subscriptions()
        return b""

    def _count(self) -> int:
        """Return the number of watchers."""
        return len(self._watchers)

    def _remove(self, watcher: "Watcher") -> None:
        self._watchers.remove(watcher)
        self._update_subscriptions()

    def _update_subscriptions(self) -> None:
        """Subscribe to exactly the events that have watchers."""
        connections_watched = CONNEVENTS in self._watchers_of
        self._watchers_of = {
            kind: watchers for kind in STREAMS if (watchers := self._watchers_for(kind))
        }
        self.wants_commands = any(kind in self._watchers_of for kind in _OF_COMMANDS)
        self._watch_commands(self.wants_commands)
        watch_connections = CONNEVENTS in self._watchers_of
        self._watch_connections(watch_connections)
        if not watch_connections:
            self._endpoints.clear()
        elif not connections_watched:
            self._endpoints = {one: (_endpoint(one), one.number) for one in self._connections}
        if self._watch_slow is not None:
            self._watch_slow(SLOW in self._watchers_of)
        of_engine = self._watchers_of.keys() - _NOT_OF_ENGINE
        self._engine.observe(self._engine.prefixes, self if of_engine else None)

    def _watchers_for(self, kind: str) -> "list[Watcher]":
        return [one for one in self._watchers if kind in one.kinds]

    # Events reported by the engine

    def fetched(self, key: bytes, item: Item | None, state: str) -> None:
        """Log a lookup."""
        if not (receivers := self._receivers(FETCHERS)):
            return
        size = class_id = 0
        if item is not None:
            size = item.size
            class_id = self._engine.sizes.of_item(len(key), item)
        self._log(
            receivers,
            "type=item_get key=%s status=%s clsid=%d cfd=%d size=%d",
            (uri_encoded(key), state, class_id, self._acting(), size),
        )

    def stored(
        self, command: str, key: bytes, flags: int, size: int, expires: float, status: str
    ) -> None:
        """Log an attempt to store."""
        if not (receivers := self._receivers(_MUTATIONS)):
            return
        engine = self._engine
        # An item that has expired at once has a negative TTL, which memcached shows as unsigned.
        ttl = max(-1, round(expires - self._clock.now())) % _U32 if expires else 0
        class_id = 0
        if size or status != "too_large":
            total = item_total(len(key), flags, size, cas=engine.cas_enabled)
            class_id = engine.sizes.of_total(total)
        self._log(
            receivers,
            "type=item_store key=%s status=%s cmd=%s ttl=%d clsid=%d cfd=%d size=%d",
            (uri_encoded(key), status, command, ttl, class_id, self._acting(), size),
        )

    def deleted(self, command: str, key: bytes, item: Item) -> None:
        """Log a deletion."""
        if receivers := self._receivers(_DELETIONS):
            class_id = self._engine.sizes.of_item(len(key), item)
            self._log(
                receivers,
                "type=deleted key=%s cmd=%s clsid=%d size=%d",
                (uri_encoded(key), command, class_id, item.size),
            )

    def evicted(self, key: bytes, item: Item) -> None:
        """Log an eviction."""
        if not (receivers := self._receivers(EVICTIONS)):
            return
        ttl = round(item.expires - self._clock.now()) if item.expires else -1
        self._log(
            receivers,
            "type=eviction key=%s fetch=%s ttl=%d la=%d clsid=%d size=%d",
            (
                uri_encoded(key),
                "yes" if item.fetched else "no",
                ttl,
                max(0, self._clock.second - item.accessed),
                self._engine.sizes.of_item(len(key), item),
                item.size,
            ),
        )

    # Events reported by the owner of connections

    def opened(self, client: Client) -> None:
        """Log a new connection."""
        endpoint, number = self._endpoints[client] = _endpoint(client), client.number
        if receivers := self._receivers(CONNEVENTS):
            self._log(receivers, "type=conn_new %s cfd=%d", (endpoint, number))

    def closed(self, client: Client) -> None:
        """Log the end of a connection."""
        endpoint, number = self._endpoints.pop(client, ("", -1))
        if receivers := self._receivers(CONNEVENTS):
            values = endpoint, client.close_reason, number
            self._log(receivers, "type=conn_close %s reason=%s cfd=%d", values)

    # Events reported by the slow log

    def slow(self, one: "SlowCommand") -> None:
        """Log a slow command."""
        if receivers := self._receivers(SLOW):
            key = "-" if one.key is None else uri_encoded(one.key) + ("..." if one.cut else "")
            self._log(
                receivers,
                "type=slow elapsed=%d cmd=%s keys=%d key=%s client=%s",
                (one.nanoseconds // 1000, one.command, one.keys, key, one.client),
            )

    # Lines

    def _receivers(self, kind: str) -> "list[Watcher]":
        """Count an event, and return the watchers that want it and have room for a line."""
        watchers = self._watchers_of.get(kind)
        if not watchers:
            return []
        self._event_id = self._next_event(self._event_id)
        self.written += 1
        receivers = []
        for watcher in watchers:
            if watcher.has_room:
                receivers.append(watcher)
            else:
                watcher.skipped += 1
        self.sent += len(receivers)
        self.skipped += len(watchers) - len(receivers)
        return receivers

    def _next_event(self, last: int) -> int:
        """Return the number of the next event."""
        return last + 1

    def _log(self, receivers: "list[Watcher]", form: str, values: tuple[object, ...]) -> None:
        head = f"ts={self._clock.now():.6f} gid={self._event_id} "
        line = (head + form % values + "\n").encode()
        for watcher in receivers:
            watcher.put(line)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._flush_handle is None:
            loop = asyncio.get_running_loop()
            self._flush_handle = loop.call_later(_FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._flush_handle = None
        for watcher in self._watchers:
            watcher.resume()


class Watcher:
    """A connection that receives lines, and its queue of unsent lines.

    Args:
        client: the connection.
        kinds: the kinds of events it wants.
        limit: bytes of lines that may wait for it. The line that exceeds the limit is the last one
            accepted until the peer reads.
        remove: called when the connection is closed.

    Attributes:
        kinds: as above.
        skipped: lines dropped since the last one queued for it.
    """

    endless = True

    def __init__(
        self, client: Client, kinds: set[str], limit: int, remove: "Callable[[Watcher], None]"
    ) -> None:
        self._client = client
        self._limit = limit
        self._remove = remove
        self._lines: list[bytes] = []
        self._size = 0
        self.kinds = kinds
        self.skipped = 0

    @property
    def has_room(self) -> bool:
        """Whether it can take another line."""
        return self._size < self._limit

    def put(self, line: bytes) -> None:
        """Queue a line, to be sent soon."""
        if self.skipped:
            line = b"skipped=%d\n%b" % (self.skipped, line)
            self.skipped = 0
        self._lines.append(line)
        self._size += len(line)
        if 2 * self._size > self._limit:
            self.resume()

    def resume(self) -> None:
        """Send the queued lines, if the peer is reading."""
        if self._lines and self._client.writable:
            lines = b"".join(self._lines)
            self._lines.clear()
            self._size = 0
            self._client.send(lines)

    def lost(self) -> None:
        """Stop watching: the connection is closed."""
        self._remove(self)


def stream_named(word: str) -> str | None:
    """Return the stream that a word stands for; as in memcached, the first one with that prefix."""
    return next((name for name in STREAMS if name.startswith(word)), None)


def _endpoint(client: Client) -> str:
    address, port, transport = client.endpoint
    return f"rip={address} rport={port} transport={transport}"
