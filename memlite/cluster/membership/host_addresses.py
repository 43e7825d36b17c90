"""IP addresses of nodes that are given by host name."""

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

from memlite.cluster.discovery import ip_of

__all__ = ["HostAddresses"]

_FRESH: Final = 60.0
_SECONDS: Final = 1.0


class HostAddresses:
    """The IP addresses of host names, for clients that resolve no names themselves.

    They are looked up beforehand, because a command must not wait for a name server.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, float]] = {}  # the address, and when it was found

    def ip(self, host: str) -> str:
        """Return the IP address of a host; empty if it is unknown."""
        return self._found.get(host, ("", 0.0))[0]

    async def look_up(self, hosts: Iterable[str]) -> None:
        """Look up hosts that are new or were last found a minute ago; forget hosts not given.

        It takes a second at most. A name that cannot be resolved keeps its last address.
        """
        now = asyncio.get_running_loop().time()
        names = {host for host in hosts if not ip_of(host)}
        self._found = {host: one for host, one in self._found.items() if host in names}
        due = [
            host
            for host in sorted(names)
            if host not in self._found or now - self._found[host][1] >= _FRESH
        ]
        if due:
            await asyncio.wait([asyncio.ensure_future(self._find(due, now))], timeout=_SECONDS)

    async def _find(self, hosts: list[str], now: float) -> None:
        loop = asyncio.get_running_loop()
        for host in hosts:
            try:
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError):  # the latter: it cannot be a host's name
                continue
            # Prefer IPv4, as in the listings that clients were made for.
            _, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
            self._found[host] = (str(address[0]), now)
