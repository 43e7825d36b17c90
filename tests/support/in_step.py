"""A server that obeys the Universal Scalability Law exactly; run with ``python -m``.

Its clients keep in step: once all have sent a request, it answers all of them together. A round
of N clients takes P + NS + N(N − 1)K on average and yields N replies, which is the law with
γ = 1/(P + S), σ = S/(P + S) and κ = K/(P + S), as in Gunther, "A General Theory of Computational
Scalability Based on Rational Functions" (2008), theorem 2 (clients in step are Amdahl's law).

A round begins when the previous round was due to end. It therefore includes the delays of timers,
the network and the clients, and a round that ends late shortens the next ones: throughput does not
change.
"""

import argparse
import asyncio
import random
import sys
from dataclasses import dataclass

__all__ = ["Law"]

_SPREAD = 0.5  # maximum deviation of a round from the mean, as a share of the mean
_PAUSE = 0.5  # after this many seconds without a round, delays are no longer made up for


@dataclass(frozen=True, slots=True)
class Law:
    """The duration of a round, in seconds: see the module docstring."""

    parallel: float
    serial: float
    pair: float

    @property
    def rate(self) -> float:
        return 1 / (self.parallel + self.serial)

    @property
    def contention(self) -> float:
        return self.serial * self.rate

    @property
    def coherency(self) -> float:
        return self.pair * self.rate

    def mean(self, clients: int) -> float:
        return self.parallel + clients * (self.serial + (clients - 1) * self.pair)


class _Server:
    def __init__(self, law: Law) -> None:
        self._law = law
        self._loop = asyncio.get_running_loop()
        self._random = random.Random(1)
        self._clients: set[asyncio.WriteTransport] = set()
        self._waiting: set[asyncio.WriteTransport] = set()
        self._due = 0.0
        self._round: asyncio.TimerHandle | None = None

    def request(self, client: asyncio.WriteTransport) -> None:
        self._clients.add(client)
        self._waiting.add(client)
        self._begin()

    def gone(self, client: asyncio.WriteTransport) -> None:
        self._clients.discard(client)
        self._waiting.discard(client)
        self._begin()

    def _begin(self) -> None:
        if self._round or not self._waiting or self._waiting != self._clients:
            return
        now = self._loop.time()
        if now - self._due > _PAUSE:
            self._due = now
        share = self._random.uniform(1 - _SPREAD, 1 + _SPREAD)
        self._due += self._law.mean(len(self._waiting)) * share
        self._round = self._loop.call_at(self._due, self._end)

    def _end(self) -> None:
        self._round = None
        answered, self._waiting = self._waiting, set()
        for client in answered:
            client.write(b"END\r\n")


class _Connection(asyncio.Protocol):
    def __init__(self, server: _Server) -> None:
        self._server, self._buffer = server, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self._server.gone(self._transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\r\n")
        for line in lines:
            word = line.split(b" ", 1)[0]
            if word == b"get":
                self._server.request(self._transport)
            elif word == b"version":
                self._transport.write(b"VERSION 1.6.0\r\n")
            elif word == b"set":
                self._transport.write(b"STORED\r\n")


async def _serve(law: Law) -> None:
    server = _Server(law)
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: _Connection(server), "127.0.0.1", 0)
    sys.stdout.write(f"{listening.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await listening.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("--parallel", "--serial", "--pair"):
        parser.add_argument(name, type=float, required=True, help="in seconds")
    asyncio.run(_serve(Law(**vars(parser.parse_args()))))
