"""Servers that have copies of one key, and connections to them that tests drive."""

import itertools
from collections import deque
from typing import cast

from memlite.proxy.node import Receiver
from memlite.proxy.replica_requests import HELD

__all__ = ["PROTECTED", "Client", "Connection", "Server", "setting"]

PROTECTED = (b"%d" % HELD, b"%d" % (HELD + 1))
"""The flags of holds and leases."""


class Server:
    """A node that executes the requests of the protocol for one key."""

    left = 30  # seconds until an item expires

    def __init__(self) -> None:
        self.item: tuple[bytes, bytes, int] | None = None  # flags, value, unique
        self.uniques = itertools.count(1)

    @property
    def value(self) -> bytes | None:
        """The value that a client would get; None if there is no item, or only a hold or lease."""
        return None if self.item is None or self.item[0] in PROTECTED else self.item[1]

    def execute(self, request: bytes) -> bytes:
        line, _, body = request.partition(b"\r\n")
        words = line.split()
        return cast("bytes", getattr(self, words[0].decode())(words, body[:-2]))

    def get(self, _words: list[bytes], _value: bytes) -> bytes:
        if self.item is None:
            return b"END\r\n"
        flags, value, _ = self.item
        return b"VALUE k %b %d\r\n%b\r\nEND\r\n" % (flags, len(value), value)

    def gets(self, _words: list[bytes], _value: bytes) -> bytes:
        if self.item is None:
            return b"END\r\n"
        flags, value, unique = self.item
        return b"VALUE k %b %d %d\r\n%b\r\nEND\r\n" % (flags, len(value), unique, value)

    def mg(self, words: list[bytes], _value: bytes) -> bytes:
        if self.item is None:
            return b"EN\r\n"
        flags, value, unique = self.item
        if b"v" in words:
            left = self.left if flags in PROTECTED else -1
            line = b"VA %d f%b t%d c%d" % (len(value), flags, left, unique)
            return b"%b\r\n%b\r\n" % (line, value)
        return b"HD f%b c%d t%d\r\n" % (flags, unique, self.left)

    def set(self, words: list[bytes], value: bytes) -> bytes:
        self.item = words[2], value, next(self.uniques)
        return b"STORED\r\n"

    def incr(self, _words: list[bytes], _value: bytes) -> bytes:
        if self.item is None:
            return b"NOT_FOUND\r\n"
        value = b"%d" % (int(self.item[1]) + 1)
        self.item = self.item[0], value, next(self.uniques)
        return value + b"\r\n"

    def version(self, _words: list[bytes], _value: bytes) -> bytes:
        return b"VERSION 1\r\n"

    def flush_all(self, _words: list[bytes], _value: bytes) -> bytes:
        self.item = None
        return b"OK\r\n"

    def _refusal(self, words: list[bytes]) -> bytes | None:
        wanted = next((int(word[1:]) for word in words[2:] if word[:1] == b"C"), None)
        if wanted is not None and self.item is None:
            return b"NF\r\n"
        if wanted is not None and self.item is not None and wanted != self.item[2]:
            return b"EX\r\n"
        return b"NS\r\n" if b"ME" in words and self.item is not None else None

    def ms(self, words: list[bytes], value: bytes) -> bytes:
        refusal = self._refusal(words)
        if refusal is not None:
            return refusal
        flags = next((word[1:] for word in words[3:] if word[:1] == b"F"), b"0")
        self.item = flags, value, next(self.uniques)
        return b"HD c%d\r\n" % self.item[2] if b"c" in words else b"HD\r\n"

    def md(self, words: list[bytes], _value: bytes) -> bytes:
        refusal = self._refusal(words)
        if refusal is None:
            refusal = b"NF\r\n" if self.item is None else b"HD\r\n"
            self.item = None
        return refusal


class Connection:
    """A proxy's connection to a server; `step` carries out a request."""

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self.server = server
        self.down = False
        self.waiting: deque[tuple[bytes, Receiver]] = deque()

    def send(self, request: bytes, receiver: Receiver) -> None:
        if self.down:
            receiver.fail(b"SERVER_ERROR node %b: down\r\n" % self.name.encode())
        else:
            self.waiting.append((request, receiver))

    def step(self) -> None:
        request, receiver = self.waiting.popleft()
        receiver.answer(self.server.execute(request))

    def lose(self, *, executed: bool = False) -> None:
        """Lose the connection, and all requests that wait on it."""
        self.down = True
        for request, receiver in [self.waiting.popleft() for _ in list(self.waiting)]:
            if executed:
                self.server.execute(request)
            receiver.fail(b"SERVER_ERROR node %b: lost\r\n" % self.name.encode())


class Client:
    """Collects replies."""

    reads = False

    def __init__(self) -> None:
        self.replies: list[bytes] = []

    def answer(self, reply: bytes) -> None:
        self.replies.append(reply)

    def fail(self, error: bytes) -> None:
        self.replies.append(error)


def setting(value: bytes) -> bytes:
    return b"set k 0 0 %d\r\n%b\r\n" % (len(value), value)
