"""Print a Markdown table of the miss ratios of memlite's eviction policies and of others.

The others are from libCacheSim, if it is installed (requirements/libcachesim.in). For all policies,
the size of an item is the size that memlite accounts for, and the capacity is a share of the total
size of all items in a trace. For the table that several workers share (`-t`), the capacity includes
the index, but items are smaller; "-" means that the capacity is too small for that table.

With --servers, traces are replayed against real servers instead, including memcached, all with the
same `-m`. Each server accounts for items in its own way, so the growth of its process is printed as
well.

    python scripts/benchmarks/hit_ratios.py [--items 50000] [--requests 300000]
    python scripts/benchmarks/hit_ratios.py --servers [--megabytes 8,32] [--trace FILE]
"""

import argparse
import bisect
import importlib
import itertools
import math
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from memlite.core.errors import ConfigError
from memlite.memory.eviction import POLICIES, cost, weigh
from memlite.memory.index import Index
from memlite.memory.item import Item, key_of, line_of, wire_form
from memlite.memory.shared import Mapping
from memlite.memory.usage import MASK, Usage

Trace = list[int]
OTHERS = {"S3-FIFO": "S3FIFO", "SIEVE": "Sieve", "ARC": "ARC", "W-TinyLFU": "WTinyLFU"}
# libCacheSim's hash tables have 2 to the power of this slots. With its default, 24, most time is
# spent on memory that stays empty.
HASH_POWER = 16
OURS = {"memlite, s3fifo": "s3fifo", "memlite, lru": "lru"}
SHARED = "memlite -t"
# The largest overhead of a record around its value, in bytes; and the number of segments of the
# space.
_AROUND = 200
_SEGMENTS = 64
ROOMS = (0.01, 0.1)
VALUE = 100  # bytes


def zipf(items: int, length: int, exponent: float, seed: int = 1) -> Trace:
    """Return requests for items whose popularity falls with their number (Zipf)."""
    rng = random.Random(seed)
    sums = list(itertools.accumulate((rank + 1) ** -exponent for rank in range(items)))
    return [bisect.bisect(sums, rng.random() * sums[-1]) for _ in range(length)]


def uniform(items: int, length: int, seed: int = 1) -> Trace:
    """Return requests for items that are equally popular."""
    rng = random.Random(seed)
    return [rng.randrange(items) for _ in range(length)]


def loop(items: int, length: int) -> Trace:
    """Return requests that cycle through the items in order."""
    return [number % items for number in range(length)]


def scans(items: int, length: int, seed: int = 1) -> Trace:
    """Return Zipf 1.0 interrupted by scans of other items; each scan occurs once or twice."""
    trace: Trace = []
    row = items // 12
    every = max(length // 8, 1)
    first = items
    for count, number in enumerate(zipf(items, length, 1.0, seed)):
        trace.append(number)
        if count % every == every - 1:
            trace.extend(range(first, first + row))
            first += row if count // every % 2 else 0
    return trace


def shifting(items: int, length: int, seed: int = 1) -> Trace:
    """Return Zipf 1.0 over a working set, half of which is replaced in each tenth of the trace."""
    return [
        number + count * 10 // length * (items // 2)
        for count, number in enumerate(zipf(items, length, 1.0, seed))
    ]


def traces(items: int, length: int) -> dict[str, tuple[Trace, Callable[[int], int]]]:
    """Return the traces by name, each with a function from item number to value size."""

    def plain(number: int) -> int:
        return VALUE

    rng = random.Random(1)
    sizes = [int(math.exp(rng.uniform(math.log(10), math.log(10_000)))) for _ in range(items)]
    return {
        "Zipf 0.6": (zipf(items, length, 0.6), plain),
        "Zipf 0.8": (zipf(items, length, 0.8), plain),
        "Zipf 1.0": (zipf(items, length, 1.0), plain),
        "Zipf 1.2": (zipf(items, length, 1.2), plain),
        "Zipf 1.0 with scans": (scans(items, length), plain),
        "a working set that shifts": (shifting(items // 4, length), plain),
        "Zipf 0.8, values of 10 to 10,000 bytes": (zipf(items, length, 0.8), sizes.__getitem__),
    }


def key_of_item(number: int) -> bytes:
    """Return the key of an item, 20 bytes."""
    return b"%020d" % number


def costs(trace: Iterable[int], size: Callable[[int], int]) -> dict[int, int]:
    """Return the size of each item in a trace."""
    return {
        number: cost(key_of_item(number), Item(wire_form(b"k" * 20, 0, bytes(size(number))), 0))
        for number in set(trace)
    }


def our_misses(trace: Trace, taken: dict[int, int], room: int, policy: str) -> int:
    """Count the misses of one of memlite's policies, used as `ItemTable` uses it."""
    usage = Usage()
    items = Index()
    chooser = POLICIES[policy](items)
    chooser.adapt(room)
    empty = Item(b"", 0)
    used = misses = 0
    for number in trace:
        line = line_of(key_of_item(number))
        item = chooser.find(line)
        if item is not None:
            item.state = usage.read[item.state & MASK]
            continue
        misses += 1
        size = taken[number]
        if size > room:
            continue
        # The content does not matter, only the size.
        item = Item(bytes(size - weigh(line, empty)), usage.fresh)
        chooser.recall(line, item)
        if used + size > room:  # a policy that must evict assumes that the cache is full
            evicted = chooser.evict(used + size - room, sys.maxsize)
            items.remove(evicted)
            used -= sum(taken[int(key_of(gone))] for gone, _, _ in evicted)
        chooser.admit(line, item, size)
        items.put(line, item)
        used += size
        if misses % 1000 == 0:
            chooser.adapt(room)
    return misses


def shared_misses(trace: Trace, size: Callable[[int], int], room: int) -> float:
    """Count the misses of the table of several workers; NaN if there is too little room."""
    lines = {number: line_of(key_of_item(number)) for number in set(trace)}
    largest = max(map(size, lines))
    try:
        mapping = Mapping(room, max(largest + _AROUND, min(1 << 20, room // _SEGMENTS)), 1)
    except ConfigError:
        return math.nan
    table = mapping.table
    table.attach(0)
    misses = 0
    for number in trace:
        if table.find(lines[number]) is None:
            misses += 1
            reply = wire_form(key_of_item(number), 0, bytes(size(number)))
            table.store(lines[number], reply, 0.0, None, 0, b"")
    return misses


def their_misses(cache: object, trace: Trace, taken: dict[int, int]) -> int:
    """Count the misses of a cache of libCacheSim."""
    request = importlib.import_module("libcachesim").Request()
    misses = 0
    for number in trace:
        request.obj_id = number
        request.obj_size = taken[number]
        misses += not cache.get(request)  # type: ignore[attr-defined]
    return misses


def ratios(
    trace: Trace, taken: dict[int, int], room: int, size: Callable[[int], int]
) -> list[float]:
    """Return the miss ratio of each column."""
    counts: list[float] = [our_misses(trace, taken, room, policy) for policy in OURS.values()]
    counts.append(shared_misses(trace, size, room))
    try:
        library = importlib.import_module("libcachesim")
    except ImportError:
        library = None
    if library is not None:
        counts += [
            their_misses(getattr(library, name)(room, hashpower=HASH_POWER), trace, taken)
            for name in OTHERS.values()
        ]
    return [count / len(trace) for count in counts]


def _shown(ratio: float) -> str:
    return "-" if math.isnan(ratio) else f"{ratio:.3f}"


def compare_servers(args: argparse.Namespace) -> None:
    """Print the table of real servers.

    Raises:
        BenchError: one of them cannot run or fails, or a trace cannot be read.
    """
    # Imported here because tests import this module where its neighbours are not found.
    from harness import contestants as who
    from harness.processes import two_cores
    from harness.replay import Request, columns, read_trace

    parties = who.contestants(args)
    core, own = two_cores()
    who.introduce(parties)
    loads: dict[str, list[Request]] = {}
    for file in args.trace:
        loads[file.name] = list(read_trace(file))
    for name, (trace, size) in traces(args.items, args.requests).items() if not loads else ():
        loads[name] = [(key_of_item(number), size(number)) for number in trace]
    heading = ""
    for name, requests in loads.items():
        for megabytes in args.megabytes:
            found = columns(parties, (core, own), megabytes, requests)
            if not heading:
                heading = "| trace | -m |" + "".join(f" {column} |" for column in found)
                print(f"\n{heading}\n| --- |{' --- |' * (len(found) + 1)}")
            cells = [
                f"{one.misses / len(requests):.3f}"
                + (f" ({one.grown / 2**20:.1f} MB)" if one.grown else "")
                + (f", {one.refused} refused" if one.refused else "")
                for one in found.values()
            ]
            print(f"| {name} | {megabytes} |", " | ".join(cells), "|", flush=True)


def _megabytes(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdecimal() and int(word) for word in words):
        raise argparse.ArgumentTypeError(f"{text}: must be megabytes, separated by commas")
    return [int(word) for word in words]


def main() -> int:
    """Print the table; return the exit code."""
    # Imported here as well; see compare_servers.
    from harness.contestants import add_options
    from harness.processes import exit_code

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, help="(default: 50,000; with --servers 400,000)")
    parser.add_argument("--requests", type=int, help="(default: 300,000; with --servers 1,000,000)")
    parser.add_argument("--servers", action="store_true", help="replay against real servers")
    parser.add_argument(
        "--megabytes", type=_megabytes, default=[8, 32], metavar="LIST",
        help="-m of the servers, each in turn (default: 8,32)",
    )  # fmt: skip
    parser.add_argument(
        "--trace", type=Path, action="append", default=[], metavar="FILE",
        help="with --servers, replay this trace in oracleGeneral format instead of generated ones"
        " (repeatable)",
    )  # fmt: skip
    add_options(parser)
    args = parser.parse_args()
    if args.trace and not args.servers:
        parser.error("--trace requires --servers")
    args.items = args.items or (400_000 if args.servers else 50_000)
    args.requests = args.requests or (1_000_000 if args.servers else 300_000)

    def run() -> int:
        if args.servers:
            compare_servers(args)
        else:
            compare_policies(args.items, args.requests)
        return 0

    return exit_code("hit_ratios", run)


def compare_policies(items: int, requests: int) -> None:
    """Print the table of policies."""
    rows = []
    for name, (trace, size) in traces(items, requests).items():
        taken = costs(trace, size)
        for share in ROOMS:
            room = int(share * sum(taken.values()))
            rows.append((f"{name} | {share:.0%}", ratios(trace, taken, room, size)))
    trace = loop(items // 10, requests)
    taken = costs(trace, lambda number: VALUE)
    room = sum(taken.values()) * 9 // 10
    rows.append(("a loop, room for 90% | 90%", ratios(trace, taken, room, lambda number: VALUE)))
    names = [*OURS, SHARED, *OTHERS][: len(rows[0][1])]
    print("| trace | room |", " | ".join(names), "|")
    print("| --- |" + " --- |" * (len(names) + 1))
    for label, values in rows:
        print(f"| {label} |", " | ".join(map(_shown, values)), "|")


if __name__ == "__main__":
    sys.exit(main())
