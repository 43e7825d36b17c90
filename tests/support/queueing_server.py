"""A server whose service times and number of workers are known: ``python -m`` this, and a port.

It answers ``get`` with a miss after a random service time. A request waits until one of the workers
is free. Moments of replies are computed from the service times, and only then waited for, so that a
timer that fires late delays a reply, but nobody who waits behind it.
"""

import asyncio
import math
import random
import sys

__all__ = ["SERVICE_TIMES", "service_times"]

SERVICE_TIMES = 20


def service_times(mean: float, seed: int) -> list[float]:
    """Return exponentially distributed times: evenly spaced quantiles, in random order."""
    shares = [(number + 0.5) / SERVICE_TIMES for number in range(SERVICE_TIMES)]
    times = [-math.log(1 - share) for share in shares]
    scale = mean * len(times) / sum(times)
    found = [scale * one for one in times]
    random.Random(seed).shuffle(found)
    return found


class _Queue:
    def __init__(self, mean: float, workers: int) -> None:
        self._mean = mean
        self._free = [0.0] * workers
        self._times: list[float] = []
        self._block = 0

    def departure(self, arrival: float) -> float:
        if not self._times:
            self._block += 1
            self._times = service_times(self._mean, self._block)
        worker = self._free.index(min(self._free))
        self._free[worker] = max(arrival, self._free[worker]) + self._times.pop()
        return self._free[worker]


class _Connection(asyncio.Protocol):
    def __init__(self, queue: _Queue) -> None:
        self._queue = queue
        self._buffer = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\r\n")
        for line in lines:
            self._answer(line)

    def _answer(self, line: bytes) -> None:
        word = line.split(b" ", 1)[0]
        if word == b"get":
            at = self._queue.departure(self._loop.time())
            self._loop.call_at(at, self._transport.write, b"END\r\n")
        elif word == b"version":
            self._transport.write(b"VERSION 1.6.0\r\n")
        elif word == b"mn":
            self._transport.write(b"MN\r\n")
        elif word == b"stats":
            self._transport.write(b"END\r\n")
        elif word == b"set":
            self._transport.write(b"STORED\r\n")


async def _serve(mean: float, workers: int) -> None:
    queue = _Queue(mean, workers)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(queue), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]), int(sys.argv[2])))
