"""Measure what clients notice while a cluster grows from three nodes to five, and shrinks again.

Clients read and write through one proxy at a fixed rate; all keys are stored beforehand. The
figures are the hit ratio and the 99th percentile of the response time in each second, and how long
each move took. Everything runs on this machine, so the mover and the nodes compete with the
clients.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.contestants import describe_cpu
from harness.processes import exit_code, progress

from memlite.client import Connection, Shape, connect, parse_address
from memlite.loadtest.report.style import DARK, LIGHT, Theme, new_figure, png
from memlite.testing import server

_VALUE: Final = b"x" * 100
_FIRST, _MORE = "abc", "de"
_MEGABYTES: Final = 4096


@dataclass
class Second:
    """The results that clients saw in one second.

    Attributes:
        gets: number of gets answered.
        hits: how many of them were hits.
        errors: requests that were answered with an error.
        times: response times in seconds, from when the requests were due.
    """

    gets: int = 0
    hits: int = 0
    errors: int = 0
    times: list[float] = field(default_factory=list)

    @property
    def p99(self) -> float:
        """The 99th percentile of the response time, in milliseconds."""
        ordered = sorted(self.times) or [0.0]
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


@dataclass(frozen=True, slots=True)
class Step:
    """A move of keys.

    Attributes:
        name: the action.
        began: seconds after the start of the measurement.
        ended: the same, for its end.
        items: number of items moved.
    """

    name: str
    began: float
    ended: float
    items: int


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--rate", type=int, default=500, help="requests per second")
    parser.add_argument("--connections", type=int, default=20, help="number of connections")
    parser.add_argument("--mover-rate", type=int, default=5000, help="items per second")
    parser.add_argument("--memcached", metavar="PATH", help="use this memcached for the nodes")
    parser.add_argument("--images", type=Path, metavar="DIR", help="where to write the plot")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures")
    parser.add_argument(
        "--rest", type=float, default=10, help="seconds before, between and after the moves"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark; return 0."""
    options = parse(arguments)
    with _cluster(options) as (url, port, added):
        steps, seconds = asyncio.run(_measure(options, url, port, added))
    _report(options, steps, seconds)
    return 0


@contextmanager
def _cluster(options: argparse.Namespace) -> Iterator[tuple[str, int, list[str]]]:
    """Run a store, five nodes and a proxy; yield the store's URL, the port and further nodes."""
    command = None
    if options.memcached:
        command = [options.memcached, "-U", "0", *(["-u", "root"] if os.geteuid() == 0 else [])]
    with ExitStack() as stack:
        store = stack.enter_context(server())
        url = f"memcached://127.0.0.1:{store.port}/bench"
        nodes = {}
        for name in _FIRST + _MORE:
            node = stack.enter_context(server("-m", str(_MEGABYTES), command=command))
            nodes[name] = f"{name}=127.0.0.1:{node.port}"
        _run("add", *(nodes[name] for name in _FIRST), "--cluster", url)
        proxying = [sys.executable, "-P", "-m", "memlite", "proxy", "--cluster", url]
        front = stack.enter_context(server(command=proxying))
        yield url, front.port, [nodes[name] for name in _MORE]


def _run(*arguments: str) -> None:
    command = [sys.executable, "-m", "memlite", "cluster", *arguments]
    subprocess.run(command, check=True, capture_output=True)


async def _measure(
    options: argparse.Namespace, url: str, port: int, added: Sequence[str]
) -> tuple[list[Step], list[Second]]:
    address = parse_address(f"127.0.0.1:{port}")
    async with _connections(address, options.connections) as connections:
        await _fill(connections[0], options.items)
        began = time.monotonic()
        seconds: list[Second] = []
        load = asyncio.ensure_future(_load(connections, options, began, seconds))
        steps = []
        try:
            for name, command in [("add", added), ("drain", list(_MORE))]:
                await asyncio.sleep(options.rest)
                steps.append(await _moved(name, command, url, options, began))
            await asyncio.sleep(options.rest)
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
    return steps, seconds


@asynccontextmanager
async def _connections(address: Any, count: int) -> AsyncIterator[list[Connection]]:
    connections = [await connect(address, timeout=60) for _ in range(count)]
    try:
        yield connections
    finally:
        for connection in connections:
            await connection.close()


def _key(number: int) -> bytes:
    return b"item:%08d" % number


async def _fill(connection: Connection, items: int) -> None:
    batch = 1000
    for first in range(0, items, batch):
        progress(f"storing {first:,} of {items:,} items")
        numbers = range(first, min(first + batch, items))
        requests = [
            b"set %b 7 0 %d\r\n%b\r\n" % (_key(one), len(_VALUE), _VALUE) for one in numbers
        ]
        sent = [connection.send(request) for request in requests]
        await connection.writable()
        for reply in await asyncio.gather(*sent):
            if reply.line != b"STORED":
                raise SystemExit(f"not stored: {reply.line!r}")


async def _load(
    connections: Sequence[Connection],
    options: argparse.Namespace,
    began: float,
    seconds: list[Second],
) -> None:
    """Send requests when they are due: nine gets for each set, of random keys."""
    draw = random.Random(1)
    interval = 1 / options.rate
    number = 0
    async with asyncio.TaskGroup() as tasks:
        while True:
            due = began + number * interval
            if (ahead := due - time.monotonic()) > 0:
                await asyncio.sleep(ahead)
            key = _key(draw.randrange(options.items))
            connection = connections[number % len(connections)]
            tasks.create_task(_ask(connection, key, draw.random() < 0.1, due, began, seconds))
            number += 1


async def _ask(
    connection: Connection, key: bytes, sets: bool, due: float, began: float, seconds: list[Second]
) -> None:
    if sets:
        request = b"set %b 7 0 %d\r\n%b\r\n" % (key, len(_VALUE), _VALUE)
        reply = await connection.request(request)
    else:
        reply = await connection.request(b"get %b\r\n" % key, Shape.ITEMS)
    at = int(due - began)
    while len(seconds) <= at:
        seconds.append(Second())
    second = seconds[at]
    second.times.append(time.monotonic() - due)
    if reply.error is not None:
        second.errors += 1
    elif not sets:
        second.gets += 1
        second.hits += bool(reply.items)


async def _moved(
    name: str, nodes: Sequence[str], url: str, options: argparse.Namespace, began: float
) -> Step:
    progress(f"{name} {' '.join(nodes)}")
    start = time.monotonic() - began
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "memlite", "cluster", name, *nodes, "--cluster", url, "--json",
        "--quiet", "--rate", str(options.mover_rate), stdout=subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"cluster {name}: exit code {process.returncode}")
    items = json.loads(said)["moved"]["items"]
    return Step(name, start, time.monotonic() - began, items)


def _report(options: argparse.Namespace, steps: Sequence[Step], seconds: Sequence[Second]) -> None:
    kind = "memcached" if options.memcached else "memlite"
    print(f"{options.items:,} items, {options.rate:,} requests/s, nodes: {kind}; {describe_cpu()}")
    quiet = [
        one
        for at, one in enumerate(seconds)
        if not any(step.began - 1 <= at <= step.ended for step in steps)
    ]
    _line("at rest", quiet)
    for step in steps:
        its = [one for at, one in enumerate(seconds) if step.began <= at <= step.ended]
        took = step.ended - step.began
        _line(f"{step.name}: {step.items:,} items in {took:.0f} s", its)
    if options.json:
        rows = [[one.gets, one.hits, one.errors, one.p99] for one in seconds]
        figures = {
            "items": options.items,
            "steps": [_fields(step) for step in steps],
            "seconds": rows,
        }
        options.json.write_text(json.dumps(figures) + "\n")
    if options.images:
        options.images.mkdir(parents=True, exist_ok=True)
        for theme, suffix in ((LIGHT, ""), (DARK, "-dark")):
            path = options.images / f"scaling{suffix}.png"
            path.write_bytes(_plot(theme, options, steps, seconds))


def _fields(step: Step) -> dict[str, Any]:
    return {"name": step.name, "began": step.began, "ended": step.ended, "items": step.items}


def _line(label: str, seconds: Sequence[Second]) -> None:
    gets, hits = sum(one.gets for one in seconds), sum(one.hits for one in seconds)
    total = Second(times=[time for one in seconds for time in one.times])
    errors = sum(one.errors for one in seconds)
    worst = min((one.hits / one.gets for one in seconds if one.gets), default=1.0)
    share = hits / gets if gets else 1.0
    print(
        f"  {label}: hit ratio {share:.3%} (worst second {worst:.2%}), "
        f"p99 {total.p99:.1f} ms, {errors} errors"
    )


def _plot(
    theme: Theme, options: argparse.Namespace, steps: Sequence[Step], seconds: Sequence[Second]
) -> bytes:
    title = f"From three nodes to five and back: {options.items:,} items"
    figure, (ratio, delay) = new_figure(theme, title, rows=2, height=5.2, sharex=True)
    times = range(len(seconds))
    ratio.plot(
        times, [100 * one.hits / one.gets if one.gets else 100 for one in seconds],
        color=theme.colours[0],
    )  # fmt: skip
    delay.plot(times, [one.p99 for one in seconds], color=theme.colours[1])
    ratio.set_ylim(95, 100.2)
    ratio.set_ylabel("hits, %", color=theme.text)
    delay.set_ylabel("p99, ms", color=theme.text)
    delay.set_ylim(bottom=0)
    delay.set_xlabel("seconds", color=theme.text)
    for step in steps:
        for axes in (ratio, delay):
            axes.axvspan(step.began, step.ended, color=theme.grid, alpha=0.6, linewidth=0)
        text = f"{step.name}: {step.items:,} items move"
        ratio.annotate(text, (step.began + 1, 95.3), color=theme.muted, fontsize=9)
    return png(figure)


if __name__ == "__main__":
    sys.exit(exit_code("bench_scaling", lambda: main(sys.argv[1:])))
