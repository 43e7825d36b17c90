"""The shell's connection to the server, for code that is not asynchronous.

The event loop runs only while a reply is awaited: the prompt has its own loop.
"""

import asyncio
import ssl
from collections.abc import Generator
from typing import Self

from memlite.client.address import Address
from memlite.client.connection import Connection, connect
from memlite.client.errors import ConnectionLostError
from memlite.client.login import LoginRefusedError, TextLogin
from memlite.client.replies import Fault, Part, ReplyError, Shape
from memlite.client.stream import ReplyStream
from memlite.core.errors import MemliteError
from memlite.shell.text import clean

__all__ = ["Link", "LinkError"]

# The number of event loop iterations that it takes to notice a closed connection: one to read, one
# to report the end, and two more with TLS in between.
_ITERATIONS = 4


class LinkError(MemliteError):
    """The server cannot be reached, went away or is not a memcached. Its text is one line."""


class Link:
    """A connection that is opened on demand, and reopened after it was lost.

    Args:
        address: the server's address.
        timeout: seconds to wait for the server at each step; None for no limit.
        value_length: limit for values, in bytes.
        tls: encrypts the connection; None for plain text.
        server_name: the name that the server's certificate must have, if not the host.
        login: sent first on each connection; None for none.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout: float | None,
        value_length: int,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        login: TextLogin | None = None,
    ) -> None:
        self.address = address
        self.login = login
        self._timeout = timeout
        self._value_length = value_length
        self._tls = tls
        self._server_name = server_name
        self._connection: Connection | None = None
        self._answered = False  # whether anything was received on this connection
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()
        self._runner.close()

    def refresh(self) -> bool:
        """Connect if necessary; return whether a connection had been lost in the meantime.

        Raises:
            LinkError: there is no server, or it refuses the login.
        """
        connection = self._connection
        lost = connection is not None and self._runner.run(_is_lost(connection))
        if lost:
            self.close()
        if self._connection is None:
            self._connection = self._runner.run(self._connect())
            self._answered = self.login is not None
        return lost

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def ask(self, data: bytes, shape: Shape) -> Generator[Part, None, None]:
        """Send a request and yield each part of the reply as it arrives.

        Closing the generator before the reply has ended closes the connection: the rest of the
        reply would be taken for the next one.

        Args:
            data: the request.
            shape: the shape of its reply.

        Raises:
            LinkError: the reply is incomplete or invalid; the connection is closed.
        """
        connection = self._connection
        if connection is None:
            raise LinkError("not connected")
        try:
            stream = self._runner.run(_begin(connection, data, shape))
            while parts := self._runner.run(_next(stream)):
                self._answered = True
                yield from parts
            # Data after the reply may have been invalid, or the conversation may be over.
            if connection.lost is not None and connection.lost.cause is not None:
                raise connection.lost
        except BaseException as error:
            self.close()
            if isinstance(error, ConnectionLostError):
                raise LinkError(self._explain(error)) from None
            raise
        if connection.spent:
            self.close()

    async def _connect(self) -> Connection:
        try:
            return await connect(
                self.address,
                tls=self._tls,
                server_name=self._server_name,
                login=self.login,
                timeout=self._timeout,
                value_length=self._value_length,
            )
        except LoginRefusedError as error:
            said = clean(error.reply) or "it closed the connection"
            user = error.user.decode("utf-8", "replace")
            raise LinkError(f"{self.address} refused user {user!r}: {said}") from None
        except (OSError, ValueError) as error:
            raise LinkError(f"cannot connect to {self.address}: {_reason(error)}") from None

    def _explain(self, error: ConnectionLostError) -> str:
        if error.cause is not None and not isinstance(error.cause, ConnectionResetError):
            return f"{self.address}: {_reason(error.cause)}"
        text = f"{self.address} closed the connection"
        if self._answered or self._tls is not None or self.address.path:
            return text
        # Servers with TLS close connections this way if the first bytes cannot begin a handshake.
        return f"{text} without an answer; if it uses TLS, try --tls"


async def _is_lost(connection: Connection) -> bool:
    for _ in range(_ITERATIONS):
        await asyncio.sleep(0)
    return connection.lost is not None


async def _begin(connection: Connection, data: bytes, shape: Shape) -> ReplyStream:
    return connection.stream(data, shape)


async def _next(stream: ReplyStream) -> list[Part]:
    return await anext(stream, [])


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out (--timeout)"
    if isinstance(error, ReplyError):
        options = {Fault.TOO_LARGE: " (--max-value)", Fault.TLS: " (--tls)"}
        return f"{error}{options.get(error.fault, '')}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"certificate verification failed: {error.verify_message} (--cacert, --sni, "
            "--tls-skip-verify)"
        )
    if isinstance(error, ConnectionResetError | BrokenPipeError | ssl.SSLEOFError):
        return "the server closed the connection"
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "it does not speak TLS"
        return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
