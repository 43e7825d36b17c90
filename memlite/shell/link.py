"""The connection to the server: TCP or a UNIX socket, perhaps TLS, perhaps authenticated."""

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Generator
from dataclasses import dataclass

from memlite.errors import ConfigError, MemliteError, ProtocolViolation
from memlite.shell.replies import Line, Part, ReplyReader, Shape
from memlite.shell.text import clean

__all__ = ["Address", "Credentials", "Link", "LinkError", "parse_address"]

_PORT = 11211
_PIECE = 256 * 1024


class LinkError(MemliteError):
    """The server cannot be reached, went away or is none. Its text is one line."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens.

    Attributes:
        host: its name or address; empty with `path`.
        port: its TCP port.
        path: of its UNIX socket.
    """

    host: str = "localhost"
    port: int = _PORT
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who to authenticate as.

    Attributes:
        user: without spaces.
        password: without line ends.
    """

    user: str
    password: bytes


def parse_address(text: str) -> Address:
    """Return the address of ``HOST``, ``HOST:PORT``, ``[::1]:PORT`` or a path with a slash.

    Raises:
        ConfigError: it is none of them.
    """
    if "/" in text and text.isprintable():
        return Address("", 0, text.removeprefix("unix:"))
    if text.count(":") > 1 and not text.startswith("["):
        return Address(text)
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(_PORT)
    bare = host.removeprefix("[").removesuffix("]")
    valid = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536
    if not bare or not valid or not text.isprintable() or " " in text:
        raise ConfigError(f"shell: not HOST:PORT or the path of a UNIX socket: {text!r}")
    return Address(bare, int(port))


class Link:
    """A connection that is made when it is needed, and again when it was lost.

    Args:
        address: of the server.
        timeout: seconds to wait for it at each step; None: for ever.
        value_at_most: bytes of the longest value to take.
        tls: makes for an encrypted connection.
        server_name: the name that its certificate must have, in place of the host's.
        credentials: sent first on each connection.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout: float | None,
        value_at_most: int,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        credentials: Credentials | None = None,
    ) -> None:
        self.address = address
        self.credentials = credentials
        self._timeout = timeout
        self._value_at_most = value_at_most
        self._tls = tls
        self._server_name = server_name or address.host or None
        self._socket: socket.socket | None = None

    def refresh(self) -> bool:
        """Connect if need be; return whether a connection had been lost meanwhile.

        Raises:
            LinkError: there is no server, or it does not let us in.
        """
        lost = self._socket is not None and self._lost()
        if lost:
            self.close()
        if self._socket is None:
            self._connect()
        return lost

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def ask(self, data: bytes, shape: Shape) -> Generator[Part, None, None]:
        """Send a request and yield each part of the reply as it comes.

        To close the generator before the reply has ended closes the connection: what still comes
        would be taken for the next reply.

        Args:
            data: the request.
            shape: what the reply looks like.

        Raises:
            LinkError: the reply did not come, or is none; the connection is closed.
        """
        connection = self._socket
        if connection is None:
            raise LinkError("not connected")
        reader = ReplyReader(shape, self._value_at_most)
        try:
            with contextlib.suppress(ConnectionError):
                # It may have been refused, and the reason waits to be read.
                for start in range(0, len(data), _PIECE):
                    connection.settimeout(self._timeout)
                    connection.sendall(data[start : start + _PIECE])
            deadline = self._deadline()
            while not reader.done:
                piece = self._receive(connection, None if reader.streaming else deadline)
                if not piece:
                    if shape is Shape.LAST:
                        break
                    raise LinkError(f"{self.address} closed the connection")
                progress = False
                for part in reader.feed(piece):
                    progress = True
                    yield part
                if progress or reader.in_value:
                    deadline = self._deadline()
        except BaseException as error:
            self.close()
            if isinstance(error, ProtocolViolation):
                raise LinkError(f"{self.address}: {error}") from None
            if isinstance(error, OSError):
                raise LinkError(f"{self.address}: {_reason(error)}") from None
            raise
        if reader.spent:
            self.close()

    def _connect(self) -> None:
        connection: socket.socket | None = None
        try:
            if self.address.path:
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(self._timeout)
                connection.connect(self.address.path)
            else:
                connection = socket.create_connection(
                    (self.address.host, self.address.port), self._timeout
                )
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_hostname=self._server_name)
        except (OSError, ValueError) as error:
            if connection is not None:
                connection.close()
            raise LinkError(f"cannot connect to {self.address}: {_reason(error)}") from None
        self._socket = connection
        if self.credentials is not None:
            self._authenticate(self.credentials)

    def _authenticate(self, credentials: Credentials) -> None:
        token = credentials.user.encode() + b" " + credentials.password
        request = b"set auth 0 0 %d\r\n%b\r\n" % (len(token), token)
        answers = list(self.ask(request, Shape.LINE))
        if answers != [Line(b"STORED")]:
            self.close()
            said = "; ".join(clean(one.text) for one in answers if isinstance(one, Line))
            raise LinkError(f"{self.address} refused user {credentials.user!r}: {said}")

    def _lost(self) -> bool:
        """Return whether the server has closed the connection, or says what nobody asked for."""
        assert self._socket is not None  # noqa: S101 - for the type checker
        if not select.select([self._socket], [], [], 0)[0]:
            return False
        if not isinstance(self._socket, ssl.SSLSocket):
            return True
        # What came may be TLS's own: tickets, for example.
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except ssl.SSLWantReadError:
            return False
        except OSError:
            pass
        return True

    def _deadline(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _receive(self, connection: socket.socket, deadline: float | None) -> bytes:
        if deadline is None:
            connection.settimeout(None)
        else:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
        return connection.recv(_PIECE)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time (--timeout)"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate: {error.verify_message} (--cacert, --sni, --tls-skip-verify)"
    if isinstance(error, ConnectionResetError | BrokenPipeError | ssl.SSLEOFError):
        return "the server closed the connection"
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "it does not speak TLS"
        return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
