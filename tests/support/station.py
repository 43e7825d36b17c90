"""A server that logs its service times, so that they are known; run with ``python -m``.

It answers ``get`` with a miss after a service time. A request waits until one of the workers is
free, which then sleeps. The time that the worker was really busy, including any timer delay, is
logged, one line per request: when the service ended, in seconds since 1970, and how long it took.
A worker with a request waiting starts it at the moment when the previous service ended.
"""

import argparse
import csv
import math
import queue
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

__all__ = ["Job", "jobs_between", "mean_service", "served", "service_times"]

BLOCK = 40

Job = tuple[float, float]
"""The end of a service, in seconds since 1970, and its duration in seconds."""


def service_times(mean: float, seed: int) -> Iterator[float]:
    """Yield exponentially distributed times with a mean.

    They are evenly spaced quantiles, in blocks of random order, so their mean is right after few
    of them.
    """
    shares = [(number + 0.5) / BLOCK for number in range(BLOCK)]
    times = [-math.log(1 - share) for share in shares]
    scale = mean * len(times) / sum(times)
    source = random.Random(seed)
    while True:
        block = [scale * one for one in times]
        source.shuffle(block)
        yield from block


def served(log: Path) -> list[Job]:
    """Return the services that a server has logged."""
    with log.open(newline="") as file:
        return [(float(end), float(taken)) for end, taken in csv.reader(file)]


def jobs_between(jobs: Sequence[Job], periods: Sequence[tuple[float, float]]) -> list[Job]:
    """Return the services that ended within one of the periods."""
    return [one for one in jobs if any(begin <= one[0] < end for begin, end in periods)]


def mean_service(jobs: Sequence[Job]) -> float:
    """Return the mean service time, in seconds."""
    return math.fsum(taken for _, taken in jobs) / len(jobs)


class _Workers:
    """A queue and the threads that serve it."""

    def __init__(self, count: int, times: Iterator[float], log: TextIO) -> None:
        self._waiting: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._times, self._log = times, log
        self._lock = threading.Lock()
        for _ in range(count):
            threading.Thread(target=self._serve, daemon=True).start()

    def add(self, client: socket.socket) -> None:
        self._waiting.put(client)

    def _serve(self) -> None:
        ended = 0.0
        while True:
            try:
                client = self._waiting.get_nowait()
                begun = ended or time.time()
            except queue.Empty:
                client = self._waiting.get()
                begun = time.time()
            with self._lock:
                wanted = next(self._times)
            time.sleep(max(begun + wanted - time.time(), 0))
            ended = time.time()
            _send(client, b"END\r\n")
            with self._lock:
                self._log.write(f"{ended:.6f},{ended - begun:.6f}\n")


def _send(client: socket.socket, data: bytes) -> None:
    try:
        client.sendall(data)
    except OSError:
        client.close()  # the client has gone


_REPLIES = {
    b"version": b"VERSION 1.6.0\r\n",
    b"mn": b"MN\r\n",
    b"stats": b"END\r\n",
    b"set": b"STORED\r\n",
}


def _listen(client: socket.socket, workers: _Workers) -> None:
    """Take the requests of a connection."""
    buffer = b""
    with client:
        while True:
            try:
                data = client.recv(65536)
            except OSError:
                return
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\r\n")
            for line in lines:
                word = line.split(b" ", 1)[0]
                if word == b"get":
                    workers.add(client)
                elif word in _REPLIES:
                    _send(client, _REPLIES[word])


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("--mean", type=float, required=True, help="service time, in seconds")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    times = service_times(options.mean, options.seed)
    with options.log.open("w", buffering=1) as log:
        workers = _Workers(options.workers, times, log)
        server = socket.create_server(("127.0.0.1", 0), backlog=128)
        sys.stdout.write(f"{server.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            client, _ = server.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_listen, args=(client, workers), daemon=True).start()


if __name__ == "__main__":
    _main()
