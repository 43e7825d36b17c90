"""``watch``: connections that are sent a line for each thing that happens."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memlite.backends import Item
from memlite.protocol import replies
from memlite.protocol.limits import item_total
from memlite.protocol.uris import uri_encoded

if TYPE_CHECKING:
    from memlite.server.connection import Connection
    from memlite.server.server import Server

__all__ = ["STREAMS", "Watchers"]

EVICTIONS, FETCHERS, MUTATIONS = "evictions", "fetchers", "mutations"
CONNEVENTS, DELETIONS = "connevents", "deletions"

# In memcached's order, which decides what an abbreviation stands for. Of those not named above
# memlite has no events: no proxy, no slabs or LRU threads; of rawcmds memcached has none, either.
STREAMS = (
    "rawcmds", EVICTIONS, FETCHERS, MUTATIONS, "sysevents", CONNEVENTS,
    "proxyreqs", "proxyevents", "proxyuser", DELETIONS,
)  # fmt: skip
_OF_COMMANDS = (FETCHERS, MUTATIONS, DELETIONS)
_AT_MOST = 20
# Lines wait that long for others to go with them: a write for each would cost more than the line.
_FLUSH_SECONDS = 0.01
_U32 = 2**32


class Watchers:
    """Writes a line for each event to the connections that asked for such.

    Implements `memlite.engine.Observer`; the server tells of connections.

    Args:
        server: whose connections and engine are watched.

    Attributes:
        commands: whether anybody watches commands; `Server.commands_watched` is the same.
        number: file descriptor of the connection whose commands run now; who runs them says.
        written: events logged, each once however many watch.
        sent: lines taken for a watcher.
        skipped: lines dropped because a watcher had not read those before.
    """

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._watchers: list[_Watcher] = []
        self._wanting: dict[str, list[_Watcher]] = {}
        self._flush_handle: asyncio.TimerHandle | None = None
        # Of connections while there is someone to tell, as a closed socket tells nothing more.
        self._endpoints: dict[Connection, tuple[str, int]] = {}
        self._gid = 0
        self.commands = False
        self.number = -1
        self.reset()

    def __len__(self) -> int:
        return len(self._watchers)

    def reset(self) -> None:
        """Count from zero (``stats reset``)."""
        self.written = self.sent = self.skipped = 0

    # Watchers come and go

    def add(self, words: Sequence[bytes], connection: "Connection") -> bytes:
        """Make a watcher of a connection.

        Args:
            words: the arguments of ``watch``.
            connection: becomes a stream.

        Returns:
            The reply; none when the connection is a watcher now, which begins with OK.
        """
        kinds = [_argument(word.decode("latin-1")) for word in words] or [FETCHERS]
        if None in kinds:
            return replies.ERROR
        if len(self._watchers) >= _AT_MOST:
            return b"WATCHER_TOO_MANY log watcher limit reached\r\n"
        limit = self._server.config.extended.watcher_logbuf_size
        watcher = _Watcher(self, connection, {kind for kind in kinds if kind}, limit)
        self._watchers.append(watcher)
        connection.attach(watcher)
        watcher.put(replies.OK)
        self._flush_soon()
        self._note_wants()
        return b""

    def remove(self, watcher: "_Watcher") -> None:
        """Forget one that is gone."""
        self._watchers.remove(watcher)
        self._note_wants()

    def _note_wants(self) -> None:
        server, watchers = self._server, self._watchers
        self._wanting = {
            kind: wanting
            for kind in STREAMS
            if (wanting := [one for one in watchers if kind in one.kinds])
        }
        self.commands = any(kind in self._wanting for kind in _OF_COMMANDS)
        server.watch_commands(self.commands)
        before, server.connections_watched = server.connections_watched, CONNEVENTS in self._wanting
        if not server.connections_watched:
            self._endpoints.clear()
        elif not before:
            self._endpoints = {one: (_endpoint(one), one.number) for one in server.connections}
        server.engine.observe(server.engine.prefixes, self if self._wanting else None)

    # Events: of the engine's

    def fetched(self, key: bytes, item: Item | None, state: str) -> None:
        """Log a lookup."""
        if not (takers := self._takers(FETCHERS)):
            return
        size = class_id = 0
        if item is not None:
            size = item.size
            class_id = self._server.engine.sizes.of_item(len(key), item)
        self._log(
            takers,
            "type=item_get key=%s status=%s clsid=%d cfd=%d size=%d",
            (uri_encoded(key), state, class_id, self.number, size),
        )

    def stored(
        self, command: str, key: bytes, flags: int, size: int, expires: float, status: str
    ) -> None:
        """Log an attempt to store."""
        if not (takers := self._takers(MUTATIONS)):
            return
        engine = self._server.engine
        # What has expired at once has a ttl below zero, which memcached shows without its sign.
        ttl = max(-1, round(expires - engine.clock.now())) % _U32 if expires else 0
        class_id = 0
        if size or status != "too_large":
            total = item_total(len(key), flags, size, cas=engine.cas_enabled)
            class_id = engine.sizes.of_total(total)
        self._log(
            takers,
            "type=item_store key=%s status=%s cmd=%s ttl=%d clsid=%d cfd=%d size=%d",
            (uri_encoded(key), status, command, ttl, class_id, self.number, size),
        )

    def deleted(self, command: str, key: bytes, item: Item) -> None:
        """Log a deletion."""
        if takers := self._takers(DELETIONS):
            class_id = self._server.engine.sizes.of_item(len(key), item)
            self._log(
                takers,
                "type=deleted key=%s cmd=%s clsid=%d size=%d",
                (uri_encoded(key), command, class_id, item.size),
            )

    def evicted(self, key: bytes, item: Item) -> None:
        """Log an eviction."""
        if not (takers := self._takers(EVICTIONS)):
            return
        engine = self._server.engine
        ttl = round(item.expires - engine.clock.now()) if item.expires else -1
        self._log(
            takers,
            "type=eviction key=%s fetch=%s ttl=%d la=%d clsid=%d size=%d",
            (
                uri_encoded(key),
                "yes" if item.fetched else "no",
                ttl,
                max(0, engine.clock.second - item.accessed),
                engine.sizes.of_item(len(key), item),
                item.size,
            ),
        )

    # Events: of the server's

    def opened(self, connection: "Connection") -> None:
        """Log a new connection."""
        endpoint, number = self._endpoints[connection] = _endpoint(connection), connection.number
        if takers := self._takers(CONNEVENTS):
            self._log(takers, "type=conn_new %s cfd=%d", (endpoint, number))

    def closed(self, connection: "Connection") -> None:
        """Log the end of a connection."""
        endpoint, number = self._endpoints.pop(connection, ("", -1))
        if takers := self._takers(CONNEVENTS):
            values = endpoint, connection.close_reason, number
            self._log(takers, "type=conn_close %s reason=%s cfd=%d", values)

    # Lines

    def _takers(self, kind: str) -> "list[_Watcher]":
        """Return who wants an event of this kind and has room for it."""
        wanting = self._wanting.get(kind)
        if not wanting:
            return []
        self._gid += 1
        self.written += 1
        takers = []
        for watcher in wanting:
            if watcher.has_room:
                takers.append(watcher)
            else:
                watcher.skipped += 1
        self.sent += len(takers)
        self.skipped += len(wanting) - len(takers)
        return takers

    def _log(self, takers: "list[_Watcher]", form: str, values: tuple[object, ...]) -> None:
        now = self._server.clock.now()
        line = (f"ts={now:.6f} gid={self._gid} " + form % values + "\n").encode()
        for watcher in takers:
            watcher.put(line)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._flush_handle is None:
            self._flush_handle = self._server.loop.call_later(_FLUSH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._flush_handle = None
        for watcher in self._watchers:
            watcher.resume()


class _Watcher:
    """A connection that is sent lines, and those it has not taken.

    Args:
        watchers: those it is one of.
        connection: where lines go.
        kinds: the events it wants.
        limit: bytes of lines that wait for it; a line over it is the last before it reads.

    Attributes:
        kinds: as above.
        skipped: lines it missed since the last it was sent.
    """

    endless = True

    def __init__(
        self, watchers: Watchers, connection: "Connection", kinds: set[str], limit: int
    ) -> None:
        self._watchers = watchers
        self._connection = connection
        self._limit = limit
        self._lines: list[bytes] = []
        self._size = 0
        self.kinds = kinds
        self.skipped = 0

    @property
    def has_room(self) -> bool:
        """Whether it may be sent a line."""
        return self._size < self._limit

    def put(self, line: bytes) -> None:
        """Send a line, soon."""
        if self.skipped:
            line = b"skipped=%d\n%b" % (self.skipped, line)
            self.skipped = 0
        self._lines.append(line)
        self._size += len(line)
        if 2 * self._size > self._limit:
            self.resume()

    def resume(self) -> None:
        """Send what waits, if the peer takes it."""
        if self._lines and self._connection.writable:
            lines = b"".join(self._lines)
            self._lines.clear()
            self._size = 0
            self._connection.send(lines)

    def lost(self) -> None:
        """Be forgotten."""
        self._watchers.remove(self)


def _argument(word: str) -> str | None:
    """Return what a word of the command stands for; memcached takes the first that begins so."""
    return next((name for name in STREAMS if name.startswith(word)), None)


def _endpoint(connection: "Connection") -> str:
    address, port, transport = connection.endpoint
    return f"rip={address} rport={port} transport={transport}"
