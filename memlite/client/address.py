"""Addresses of servers, and their notation."""

from dataclasses import dataclass
from typing import Self

from memlite.core.errors import ConfigError

__all__ = ["PORT", "Address", "parse_address"]

PORT = 11211
"""The port that memcached servers listen on by default."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address that a server listens on.

    Attributes:
        host: its name or IP address; empty with `path`.
        port: its TCP port; 0 with `path`.
        path: the path of its UNIX socket; empty with `host`.
    """

    host: str = "localhost"
    port: int = PORT
    path: str = ""

    @classmethod
    def of(cls, address: tuple[str, int] | str) -> Self:
        """Return the address for a host and a port, or for the path of a UNIX socket."""
        return cls("", 0, address) if isinstance(address, str) else cls(*address)

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, default_port: int | None = PORT) -> Address:
    """Return the address that ``HOST``, ``HOST:PORT``, ``[::1]:PORT`` or a path stands for.

    A path contains a slash; ``unix:`` may precede it.

    Args:
        text: the address as written by a user.
        default_port: the port to use if the text has none; None if a port is required.

    Raises:
        ConfigError: the text is not an address.
    """
    if "/" in text and text.isprintable():
        return Address("", 0, text.removeprefix("unix:"))
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host and not text.startswith("[")):
        # There is no port: the colons belong to an IPv6 address.
        host, port = text, str(default_port or "")
    bare = host.removeprefix("[").removesuffix("]")
    valid = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536
    if not bare or not valid or not text.isprintable() or " " in text:
        raise ConfigError(f"not HOST:PORT or the path of a UNIX socket: {text!r}")
    return Address(bare, int(port))
