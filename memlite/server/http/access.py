"""Access control: a token, and the host names under which browsers may reach this server."""

import base64
import binascii
import contextlib
import hmac
import ipaddress
import logging
import socket
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from memlite.core.errors import StartError
from memlite.core.files import PATIENCE, read_whole

__all__ = ["Access", "Token", "host_of"]

_log = logging.getLogger("memlite")

_MAX_FILE_SIZE: Final = 4096
_SHORTEST: Final = 16


class Token:
    """The token in a file, its first line.

    Args:
        path: the file, made absolute so that reloading works from any directory.
        warns: whether to log a warning if every user can read the file.

    Raises:
        StartError: the file cannot be used, or the token could be guessed.
    """

    def __init__(self, path: str, *, warns: bool = True) -> None:
        self._warns = warns
        self._path = Path(path).absolute()
        self._label = f"--http-token-file: {path}"
        self._token = b""
        self.load(PATIENCE)

    def load(self, patience: float = 0.0) -> None:
        """Load or reload the file.

        Args:
            patience: seconds to wait for the end of a pipe or the like; see `read_whole`.

        Raises:
            StartError: the file cannot be used; an old token stays in effect.
        """
        try:
            text, mode = read_whole(self._path, _MAX_FILE_SIZE, patience)
        except OSError as error:
            raise StartError(f"{self._label}: {error.strerror}") from None
        token = text.partition(b"\n")[0].strip()
        if len(token) < _SHORTEST or not all(33 <= byte <= 126 for byte in token):
            raise StartError(
                f"{self._label}: the first line must be a token of at least {_SHORTEST} ASCII "
                "characters without spaces; create one with: openssl rand -hex 16"
            )
        if self._warns and mode & stat.S_IROTH and sys.platform != "win32":
            _log.warning("%s: readable by every user on this machine", self._label)
        self._token = token

    def accepts(self, authorization: str) -> bool:
        """Return whether an ``Authorization`` header has the token.

        The token may be a bearer token (RFC 6750) or, since browsers prompt for one, the password
        of any user (RFC 7617). The comparison takes the same time for all tokens.
        """
        scheme, _, credentials = authorization.partition(" ")
        given = b""
        if scheme.lower() == "bearer":
            given = credentials.strip().encode(errors="replace")
        elif scheme.lower() == "basic":
            with contextlib.suppress(binascii.Error, ValueError):
                given = base64.b64decode(credentials.strip(), validate=True).partition(b":")[2]
        return hmac.compare_digest(given, self._token)


class Access:
    """Decides whether a request is answered.

    A page of another origin cannot read replies, as no header allows it. It could if its own name
    resolved to this server (DNS rebinding), so only requests to an address or to a known name of
    this server are answered. A request with the token needs no known name.

    Args:
        token: the token; None if none is needed.
        hosts: names of this server, in addition to localhost and the machine's name.
    """

    def __init__(self, token: Token | None, hosts: Iterable[str]) -> None:
        self._token = token
        names = (*hosts, "localhost", socket.gethostname())
        self._hosts = frozenset(name.lower().rstrip(".") for name in names)

    def knows_host(self, header: str) -> bool:
        """Return whether a ``Host`` header has an address or one of this server's names."""
        host = host_of(header)
        if host is None:
            return False
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return host.lower().rstrip(".") in self._hosts
        return True

    def has_token(self, authorization: str) -> bool:
        """Return whether a request has the token; False if there is none."""
        return self._token is not None and self._token.accepts(authorization)

    @property
    def needs_token(self) -> bool:
        """Whether requests need a token."""
        return self._token is not None


def host_of(header: str) -> str | None:
    """Return the host of a ``Host`` header without its port; None if the header is malformed."""
    if header.startswith("["):
        host, bracket, port = header[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port[1:]
    else:
        host, _, port = header.partition(":")
    return host if host and (not port or (port.isascii() and port.isdigit())) else None
