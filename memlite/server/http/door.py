"""Accepts a bounded number of connections to the HTTP port."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from memlite.server.http.guard import Guard

_log = logging.getLogger("memlite")

__all__ = ["MAX_CONNECTIONS", "Door", "HttpListener"]

MAX_CONNECTIONS: Final = 64
"""The maximum number of connections to the HTTP port; further ones displace idle ones."""

_HANDSHAKE_SECONDS: Final = 5.0
_ACCEPT_AT_ONCE: Final = 16
_PAUSE_SECONDS: Final = 1.0


class HttpListener(Protocol):
    """A socket that accepts connections.

    Attributes:
        sock: the socket.
        label: its address, such as ``http:127.0.0.1:9150``.
        tls: the kind of TLS it speaks; empty for none.
    """

    sock: socket.socket
    label: str
    tls: str


class Door:
    """Accepts connections, and closes overdue ones.

    Sockets are accepted here rather than by the event loop, so that connections whose TLS handshake
    is not finished count as well.

    Args:
        listeners: the sockets; the caller closes them.
        context: returns the TLS settings of a new connection, by `HttpListener.tls`.
        protocol: creates aiohttp's protocol.

    Attributes:
        refused: the number of connections closed immediately, as no open one was idle.
        displaced: the number of idle connections closed to make room for new ones.
    """

    def __init__(
        self,
        listeners: Sequence[HttpListener],
        context: Callable[[str], ssl.SSLContext],
        protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        self._listeners = listeners
        self._context = context
        self._protocol = protocol
        self._guards: dict[asyncio.Protocol, Guard] = {}
        self._entering: dict[Guard, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._open = False
        self.refused = self.displaced = 0

    def open(self) -> None:
        """Accept connections from now on."""
        self._open = True
        for listener in self._listeners:
            self._listen(listener)
            _log.info("server listening (%s)", listener.label)
        self._look_after()

    def close(self) -> None:
        """Stop accepting, and close all connections."""
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
        for listener in self._listeners:
            if listener.sock.fileno() >= 0:
                self._loop.remove_reader(listener.sock)
        for task in self._entering.values():
            task.cancel()
        for guard in list(self._guards.values()):
            guard.abort()

    @property
    def unfinished(self) -> int:
        """The number of connections with a request or a reply in progress."""
        return sum(guard.unfinished for guard in self._guards.values())

    def guard_of(self, protocol: asyncio.Protocol) -> Guard | None:
        """Return the connection of one of aiohttp's protocols; None once it is closed."""
        return self._guards.get(protocol)

    def _listen(self, listener: HttpListener) -> None:
        if self._open and listener.sock.fileno() >= 0:
            self._loop.add_reader(listener.sock, self._accept, listener)

    def _accept(self, listener: HttpListener) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                sock, _address = listener.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of file descriptors. Clients of the cache need them more, so wait.
                self._loop.remove_reader(listener.sock)
                self._loop.call_later(_PAUSE_SECONDS, self._listen, listener)
                return
            if len(self._guards) >= MAX_CONNECTIONS and not self._displace():
                self.refused += 1
                sock.close()
                continue
            sock.setblocking(False)
            inner = self._protocol()
            guard = self._guards[inner] = Guard(inner, self._loop.time, self._forget)
            task = self._loop.create_task(self._enter(guard, sock, listener.tls))
            self._entering[guard] = task
            task.add_done_callback(partial(self._entered, guard))

    def _displace(self) -> bool:
        """Close the connection that has been idle for the longest; return whether there is one.

        Connections without the token are closed first, so clients that merely hold connections
        cannot shut out clients with the token.
        """
        idle = [guard for guard in self._guards.values() if not guard.answering]
        if not idle:
            return False
        guard = min(idle, key=lambda guard: (guard.trusted, guard.since))
        self._forget(guard)  # frees its place now; its closing is noticed only later
        entering = self._entering.get(guard)
        if entering is not None:
            entering.cancel()
        guard.abort()
        self.displaced += 1
        return True

    async def _enter(self, guard: Guard, sock: socket.socket, tls: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: guard,
                sock,
                ssl=self._context(tls) if tls else None,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if tls else None,
            )
        except BaseException as error:
            self._forget(guard)
            # An OSError is the peer's fault: it disconnected, was too slow, or does not speak TLS.
            if not isinstance(error, OSError):
                raise

    def _entered(self, guard: Guard, _task: "asyncio.Task[None]") -> None:
        del self._entering[guard]

    def _forget(self, guard: Guard) -> None:
        self._guards.pop(guard.inner, None)

    def _look_after(self) -> None:
        for guard in list(self._guards.values()):
            if guard.overdue():
                guard.abort()
        self._timer = self._loop.call_later(1.0, self._look_after)
