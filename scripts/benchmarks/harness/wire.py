"""A minimal client: one connection, text protocol, every call waits for its replies."""

import socket
from collections import Counter
from collections.abc import Sequence
from typing import Self

from harness.processes import HOST, BenchError

__all__ = ["Wire"]

_SECONDS = 60.0


class Wire:
    """A connection to a server on this machine."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._replies.close()
        self._socket.close()

    def line(self) -> bytes:
        """Return the next line of a reply, without its line end.

        Raises:
            BenchError: the server closed the connection.
        """
        line = self._replies.readline()
        if not line.endswith(b"\r\n"):
            raise BenchError("the server closed a connection")
        return line[:-2]

    def ask(self, command: bytes) -> bytes:
        """Send a command; return the first line of its reply."""
        self._socket.sendall(command + b"\r\n")
        return self.line()

    def lines(self, command: bytes) -> list[bytes]:
        """Send a command with a reply of several lines; return the lines before ``END``."""
        found = []
        line = self.ask(command)
        while line != b"END":
            if line.startswith((b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR")):
                raise BenchError(f"{command.decode()}: {line.decode()}")
            found.append(line)
            line = self.line()
        return found

    def stats(self, group: str = "") -> dict[str, str]:
        """Return a group of statistics."""
        lines = self.lines(f"stats {group}".strip().encode())
        return dict(line.decode().split(" ", 2)[1:] for line in lines)

    def keys(self, keys: Sequence[bytes]) -> set[bytes]:
        """Get keys in one request; return the keys that were found.

        Raises:
            BenchError: the reply is not one to a get.
        """
        found = set()
        line = self.ask(b"get " + b" ".join(keys))
        while line != b"END":
            words = line.split(b" ")
            if words[0] != b"VALUE":
                raise BenchError(f"a get was answered {line.decode()}")
            self._replies.read(int(words[3]) + 2)
            found.add(words[1])
            line = self.line()
        return found

    def pipelined(self, requests: Sequence[bytes]) -> Counter[bytes]:
        """Send requests with one-line replies in a single write; count the replies."""
        self._socket.sendall(b"".join(requests))
        return Counter(self.line() for _ in requests)
