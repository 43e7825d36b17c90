"""Who clients say they are, to servers that let nobody in without a password."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from memlite.errors import ConfigError

__all__ = ["PASSWORD_VARIABLE", "Introduction", "Login", "LoginRefusedError", "read_login"]

PASSWORD_VARIABLE = "MEMLITE_BENCH_PASSWORD"  # noqa: S105 - its name
_ACCEPTED = b"STORED"
_LONGEST_REPLY = 1000


class LoginRefusedError(ConnectionError):
    """The server does not let a client in."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password, of the text protocol.

    Attributes:
        user: the name.
        password: not to be shown.
    """

    user: bytes
    password: bytes = field(repr=False)

    @property
    def request(self) -> bytes:
        """What a client sends first."""
        return b"set login 0 0 %d\r\n%b %b\r\n" % (
            len(self.user) + 1 + len(self.password),
            self.user,
            self.password,
        )

    def check(self, reply: bytes) -> None:
        """See that the server's answer, a line, is that it lets the client in.

        Raises:
            LoginRefusedError: it does not.
        """
        if reply.strip() != _ACCEPTED:
            said = reply.strip().decode("latin-1") or "connection closed"
            raise LoginRefusedError(f"authentication as {self.user.decode()}: {said}")


def read_login(
    user: str | None, file: Path | None, environment: Mapping[str, str] = os.environ
) -> Login | None:
    """Return what ``--user``, ``--password-file`` and the environment say; None for no login.

    Raises:
        ConfigError: one is missing, or the file cannot be read.
    """
    if user is None:
        if file is not None:
            raise ConfigError("bench: --password-file is for --user")
        return None
    if not user or " " in user:
        raise ConfigError("bench: --user must be a name without spaces")
    if file is None:
        password = environment.get(PASSWORD_VARIABLE, "").encode("utf-8", "surrogateescape")
        source = PASSWORD_VARIABLE
    else:
        try:
            password = file.read_bytes().partition(b"\n")[0].removesuffix(b"\r")
        except OSError as error:
            raise ConfigError(f"bench: --password-file {file}: {error.strerror}") from None
        source = f"--password-file {file}"
    if not password:
        raise ConfigError(
            f"bench: --user {user}: no password in {source}"
            + ("" if file else "; give it there, or in a --password-file")
        )
    return Login(user.encode("utf-8", "surrogateescape"), password)


class Introduction(asyncio.Protocol):
    """Says who a client is, before its connection is what it is to be.

    Args:
        login: who.
        client: what the connection is to be.
    """

    def __init__(self, login: Login, client: asyncio.Protocol) -> None:
        self._login = login
        self._client = client
        self._reply = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say it."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._login.request)

    def data_received(self, data: bytes) -> None:
        """Give way to the client, or give up."""
        self._reply += data
        if b"\n" in self._reply or len(self._reply) > _LONGEST_REPLY:
            self._decide()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up."""
        self._decide()

    def _decide(self) -> None:
        if self.done.done():
            return
        try:
            self._login.check(self._reply)
        except LoginRefusedError as error:
            self._transport.abort()
            self.done.set_exception(error)
            return
        self._transport.set_protocol(self._client)
        self._client.connection_made(self._transport)
        self.done.set_result(None)
