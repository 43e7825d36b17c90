"""Learns from the store which keys have changed, through any client.

A connection to each master asks for the names of all keys with a prefix that change or expire
(``CLIENT TRACKING ON BCAST``, https://valkey.io/topics/client-side-caching), so the store need not
remember which of them were read.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio.connection import Connection
from redis.exceptions import RedisError, ResponseError

from memlite.backends.valkey.library import tell_of_changes
from memlite.backends.valkey.node import Address
from memlite.core.logs import failure

__all__ = ["Tracking"]

_log = logging.getLogger("memlite")

_FAILURES = (RedisError, OSError, EOFError, TimeoutError)
# Seconds between two attempts to connect, and between two keepalive requests.
_PAUSE = 1.0
# The same, after a failure that a retry is unlikely to fix.
_LONG_PAUSE = 60.0


class _Life:
    """When a connection last gave a sign of life, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.seen = time.monotonic()


class Tracking:
    """Follows the masters of a store.

    Args:
        connect: creates a connection with RESP3, which is not connected yet.
        prefixes: the prefixes of the names of the keys.
        changed: called with the name of each key that has changed; with None if any may have
            changed while a connection was down.
        timeout: seconds without a sign of life after which a connection counts as lost.

    Attributes:
        changes: number of names received.
    """

    def __init__(
        self,
        connect: Callable[[Address], Connection],
        prefixes: Sequence[bytes],
        changed: Callable[[bytes | None], None],
        timeout: float,
    ) -> None:
        self.changes = 0
        self._connect = connect
        self._prefixes = prefixes
        self._changed = changed
        self._timeout = timeout
        self._followed: dict[Address, asyncio.Task[None]] = {}
        self._open: set[Connection] = set()
        self._refused = False

    @property
    def open(self) -> int:
        """Number of masters that report changes now."""
        return len(self._open)

    def follow(self, masters: Iterable[Address]) -> None:
        """Follow these masters, and no others."""
        wanted = set(masters)
        for address in set(self._followed) - wanted:
            self.leave(address)
        for address in wanted - set(self._followed):
            self._followed[address] = asyncio.ensure_future(self._run(address))

    def leave(self, master: Address) -> None:
        """Close the connection to a server."""
        task = self._followed.pop(master, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Close all connections."""
        tasks = list(self._followed.values())
        self._followed.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, address: Address) -> None:
        while True:
            connection, pause = self._connect(address), _PAUSE
            try:
                await self._begin(connection)
                self._open.add(connection)
                await self._listen(connection)
            except ResponseError as error:
                self._note_refusal(address, error)
                pause = _LONG_PAUSE
            except _FAILURES:
                pass
            except Exception:  # noqa: BLE001 - a bug must not end this for good
                _log.exception(
                    "tracking changes in the store failed", extra=failure("tracking_failed")
                )
                pause = _LONG_PAUSE
            finally:
                if connection in self._open:
                    self._open.discard(connection)
                    self._changed(None)
                await connection.disconnect(nowait=True)
            await asyncio.sleep(pause)

    async def _begin(self, connection: Connection) -> None:
        async with asyncio.timeout(self._timeout):
            await connection.connect()
            tell_of_changes(connection, self._received)
            prefixes = [part for prefix in self._prefixes for part in ("PREFIX", prefix)]
            await connection.send_command(
                "CLIENT", "TRACKING", "ON", "BCAST", *prefixes, check_health=False
            )
            await connection.read_response(push_request=True)
        self._changed(None)  # earlier changes were not reported

    async def _listen(self, connection: Connection) -> None:
        """Return, or raise the failure, once the connection is lost or gives no sign of life."""
        life = _Life()
        reading = asyncio.ensure_future(self._read(connection, life))
        try:
            while not reading.done() and time.monotonic() - life.seen < _PAUSE + self._timeout:
                with suppress(*_FAILURES):
                    if connection.is_connected:  # otherwise it would connect again, untracked
                        await connection.send_command("PING", check_health=False)
                await asyncio.wait([reading], timeout=_PAUSE)
            if reading.done():
                await reading
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    async def _read(self, connection: Connection, life: _Life) -> None:
        while True:
            await connection.read_response(push_request=True)
            life.seen = time.monotonic()

    def _note_refusal(self, address: Address, error: ResponseError) -> None:
        if not self._refused:
            self._refused = True
            _log.warning(
                "the store at %s:%d does not report changes; near caches will see those of other "
                "servers late: %s",
                *address,
                error,
            )

    async def _received(self, message: Sequence[Any]) -> None:
        names = message[1]
        if names is None:  # the store was flushed
            self._changed(None)
            return
        self.changes += len(names)
        for name in names:
            self._changed(name)
