"""A server that obeys the Universal Scalability Law exactly: ``python -m`` this.

Its clients keep in step. When all of them have sent their request, it takes a time that is the same
for any number of them (P), then a time for each (S, what is done by one at a time), and a time for
each ordered pair (K); then it answers all. So N clients take P + NS + N(N − 1)K for N requests:
the law with γ = 1/(P + S), σ = S/(P + S) and κ = K/(P + S), as in Gunther, "A General Theory of
Computational Scalability Based on Rational Functions" (2008), theorem 2 (clients in step are
Amdahl's law).

The log has a line for each round: when it ended, in seconds since 1970; the number of clients; the
seconds from the last reply to the last request, in which the network and the clients had their
turn; and the seconds that each of the three parts really took.
"""

import argparse
import asyncio
import csv
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

__all__ = ["Round", "Truth", "rounds", "truth"]

_SPREAD = 0.3  # how far the times of a round may be from their means, as a share of these


@dataclass(frozen=True, slots=True)
class Round:
    """What a round took, in seconds; see the module."""

    ended: float
    clients: int
    outside: float
    parallel: float
    serial: float
    pairs: float


@dataclass(frozen=True, slots=True)
class Truth:
    """The parameters of the law."""

    rate: float
    contention: float
    coherency: float


def rounds(log: Path) -> list[Round]:
    """Return what a server has written down."""
    with log.open(newline="") as file:
        return [
            Round(float(ended), int(clients), *map(float, parts))
            for ended, clients, *parts in csv.reader(file)
        ]


def truth(found: Sequence[Round]) -> Truth:
    """Return the law's parameters by the times that each part took.

    The load generator serves its clients one by one: of the time outside, what grows with their
    number is serial.
    """
    slope, level = np.polyfit([one.clients for one in found], [one.outside for one in found], 1)
    parallel = math.fsum(one.parallel for one in found) / len(found) + float(level)
    serial = math.fsum(one.serial for one in found) / sum(one.clients for one in found)
    serial += float(slope)
    pairs = sum(one.clients * (one.clients - 1) for one in found)
    each = math.fsum(one.pairs for one in found) / pairs if pairs else 0.0
    alone = parallel + serial
    return Truth(1 / alone, serial / alone, each / alone)


class _Server:
    def __init__(self, parallel: float, serial: float, pair: float, log: TextIO) -> None:
        self._times = parallel, serial, pair
        self._log = log
        self._random = random.Random(1)
        self._clients: set[asyncio.WriteTransport] = set()
        self._waiting: list[asyncio.WriteTransport] = []
        self._ended = 0.0
        self._round: asyncio.Task[None] | None = None

    def request(self, client: asyncio.WriteTransport) -> None:
        self._clients.add(client)
        self._waiting.append(client)
        self._begin()

    def gone(self, client: asyncio.WriteTransport) -> None:
        self._clients.discard(client)
        self._waiting = [one for one in self._waiting if one is not client]
        self._begin()

    def _begin(self) -> None:
        running = self._round is not None and not self._round.done()
        if self._waiting and len(self._waiting) == len(self._clients) and not running:
            waiting, self._waiting = self._waiting, []
            self._round = asyncio.create_task(self._serve(waiting))

    async def _serve(self, clients: Sequence[asyncio.WriteTransport]) -> None:
        parallel, serial, pair = self._times
        count = len(clients)
        begun = time.time()
        outside = begun - (self._ended or begun)
        await self._sleep(parallel)
        one = time.time()
        await self._sleep(serial * count)
        two = time.time()
        await self._sleep(pair * count * (count - 1))
        three = self._ended = time.time()
        parts = outside, one - begun, two - one, three - two
        self._log.write(f"{three:.6f},{count},{','.join(f'{part:.6f}' for part in parts)}\n")
        for client in clients:
            client.write(b"END\r\n")
        # A client that left meanwhile cannot start the next round itself.
        asyncio.get_running_loop().call_soon(self._begin)

    async def _sleep(self, mean: float) -> None:
        if mean:
            await asyncio.sleep(mean * self._random.uniform(1 - _SPREAD, 1 + _SPREAD))


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


async def _serve(options: argparse.Namespace) -> None:
    with options.log.open("w", buffering=1) as log:
        server = _Server(options.parallel, options.serial, options.pair, log)
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: _Connection(server), "127.0.0.1", 0)
        sys.stdout.write(f"{listening.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        await listening.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    for name in ("--parallel", "--serial", "--pair"):
        parser.add_argument(name, type=float, default=0.0, help="in seconds")
    asyncio.run(_serve(parser.parse_args()))
