"""A UDP client: frames requests, and receives the messages that come back."""

import contextlib
import itertools
import socket
import struct
import time
from typing import Self

from tests.support.servers import RunningServer

QUIET_SECONDS = 0.1

Datagram = tuple[tuple[int, int, int, int], bytes]


def framed(
    payload: bytes, request_id: int = 7, sequence: int = 0, total: int = 1, reserved: int = 0
) -> bytes:
    return struct.pack(">HHHH", request_id, sequence, total, reserved) + payload


class Datagrams:
    """Sends datagrams to a server and receives the replies."""

    def __init__(self, server: RunningServer, source: str = "127.0.0.1") -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * 1024 * 1024)
        self.sock.bind((source, 0))
        self.sock.connect(("127.0.0.1", server.udp_port))
        self._probes = itertools.count(50_000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.sock.close()

    def send(self, payload: bytes, **header: int) -> None:
        # The exception reports an ICMP message about an earlier datagram.
        with contextlib.suppress(ConnectionRefusedError):
            self.sock.send(framed(payload, **header))

    def receive(self, seconds: float = 10) -> Datagram:
        """Return the next datagram.

        Raises:
            TimeoutError: none arrived.
        """
        self.sock.settimeout(seconds)
        data = self.sock.recv(65536)
        assert len(data) <= 1400
        request_id, sequence, total, reserved = struct.unpack(">HHHH", data[:8])
        return (request_id, sequence, total, reserved), data[8:]

    def until_quiet(self, seconds: float = QUIET_SECONDS, first: float = 0) -> list[Datagram]:
        """Return the datagrams that arrive until a pause.

        Args:
            seconds: the length of the pause.
            first: how many seconds to wait for the first datagram, if that may take longer.
        """
        found = []
        with contextlib.suppress(TimeoutError):
            found.append(self.receive(max(first, seconds)))
            while True:
                found.append(self.receive(seconds))
        return found

    def until_answered(self, least: int = 0) -> list[Datagram]:
        """Return the datagrams that arrive before the reply to one more request.

        All replies to earlier requests arrive before that reply, and no time is lost if there are
        none. memlite sends replies of many datagrams in portions, with small replies in between.

        Args:
            least: the minimum number of datagrams to wait for.
        """
        request_id = next(self._probes)
        self.send(b"get probe\r\n", request_id=request_id)
        probe = ((request_id, 0, 1, 0), b"END\r\n")
        answered, found = False, list[Datagram]()
        while not answered or len(found) < least:
            datagram = self.receive()
            if datagram == probe:
                answered = True
            else:
                found.append(datagram)
        return found

    def ask(self, payload: bytes, request_id: int = 7) -> bytes:
        """Return the reply to one command, assembled from its datagrams."""
        self.send(payload, request_id=request_id)
        parts: dict[int, bytes] = {}
        while True:
            (found_id, sequence, total, reserved), data = self.receive()
            assert (found_id, reserved) == (request_id, 0)
            parts[sequence] = data
            if len(parts) == total:
                return b"".join(parts[number] for number in range(total))

    def works(self, seconds: float = 10) -> bool:
        """Return whether requests are answered; some of them may still be lost."""
        deadline = time.monotonic() + seconds
        self.until_quiet(0.01)
        while time.monotonic() < deadline:
            self.send(b"get works\r\n", request_id=4711)
            with contextlib.suppress(TimeoutError):
                while True:
                    if self.receive(0.2) == ((4711, 0, 1, 0), b"END\r\n"):
                        return True
        return False
