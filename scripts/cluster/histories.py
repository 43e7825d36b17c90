"""Check that what clients of two proxies see is linearizable while nodes fail, join and leave.

    PYTHONPATH=. .venv/bin/python scripts/cluster/histories.py --count 200
    PYTHONPATH=. .venv/bin/python scripts/cluster/histories.py --faults killed,back --seed 7

All keys have replicas. A history is 500 operations or more of six clients, and is checked key by
key. Faults are ``paused`` (for longer than the deadline), ``killed`` (for good), ``back`` (killed,
and started again, empty), ``added`` and ``drained``, with each configuration of replicas that
gives a guarantee for the fault, in front of memlite and, if installed, memcached. A table says how
many histories, operations and violations there were; each violation is printed as well.

The seed determines what clients send; which requests overlap depends on timing.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.integration.cluster import test_moving_histories as moves
from tests.integration.cluster import test_replica_histories as replicas
from tests.support.clusters import cluster as members
from tests.support.linearizability import Operation, check_each
from tests.support.linearizability.clients import Recording
from tests.support.linearizability.history import EVERY_KEY, NEVER
from tests.support.servers import memcached_path, running

FAILURES = ("paused", "killed", "back")
CHANGES = ("added", "drained")
FAULTS = (*FAILURES, *CHANGES)
COPIES = (2, 3)


@dataclass
class Row:
    """The results for a configuration with a fault.

    Attributes:
        configuration: the replicas, and the kind of nodes.
        fault: the fault.
        histories: number of histories recorded.
        operations: number of operations in all of them.
        errors: number of operations answered with an error.
        met: number of histories with such an answer.
        violations: keys whose histories are not linearizable, and other problems.
    """

    configuration: str
    fault: str
    histories: int = 0
    operations: int = 0
    errors: int = 0
    met: int = 0
    violations: list[str] = field(default_factory=list)

    def take(self, recording: Recording, more: Sequence[Operation], seed: str) -> None:
        """Check a history.

        Args:
            recording: the history.
            more: further operations, at any time.
            seed: the seed, for the message.
        """
        self.histories += 1
        self.operations += len(recording.history)
        errors = sum(recording.errors.values())
        self.errors += errors
        self.met += bool(errors)
        found = [*map(str, check_each([*more, *recording.history])), *recording.bugs]
        self.violations += [f"{self.configuration}, {self.fault}, {seed}:\n{one}" for one in found]
        say(f"{self.configuration}, {self.fault}: {seed}, {len(recording.history)} operations")
        for one in self.violations[len(self.violations) - len(found) :]:
            say(one)


def say(text: str) -> None:
    """Print a line about the progress."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def same(check: Callable[[], None], row: Row, seed: str) -> None:
    """Record a violation if nodes have different copies."""
    try:
        check()
    except AssertionError:
        row.violations.append(f"{row.configuration}, {row.fault}, {seed}: copies differ")
        say(row.violations[-1])


def fail(promise: replicas.Promise, kind: str, fault: str, count: int, seed: int) -> Row:
    """Record histories while a node fails."""
    row = Row(
        f"{promise.replicas} copies, write={promise.write}, read={promise.read}, {kind}", fault
    )
    options = (
        *("--replicas", str(promise.replicas), "--write", promise.write, "--read", promise.read),
        *("--deadline", "0.2"),
    )
    with contextlib.ExitStack() as stack:
        nodes, fronts = stack.enter_context(replicas.cluster(kind, *options))
        for number in range(seed, seed + count):
            failing = number % len(nodes)
            node, name = nodes[failing], f"seed {number}"
            keys = promise.keys(nodes, failing, number)
            losing = [one for one in nodes if not promise.at_replicas or one is not node]
            before = replicas.flushes(fronts, losing)
            if fault == "paused":
                failure = replicas.pause(node)
            elif fault == "back":
                failure = replicas.restart(kind, nodes, failing, stack)
            else:
                failure = kill(node.process.kill)
            asked = replicas.targets(fronts, number, keys, replicas.PAUSE)
            recording = asyncio.run(replicas.during(failure, asked, str(number)))
            if fault == "killed":
                nodes[failing] = stack.enter_context(running(kind, "-p", str(node.port)))
            replicas.wait_until_up(fronts, nodes)
            lost = replicas.flushes(fronts, losing) - before
            lost += fault != "paused" and not promise.at_replicas
            emptied = [
                Operation(f"fault {one}", "flush_all", EVERY_KEY, 0.0, NEVER, None)
                for one in range(lost)
            ]
            row.take(recording, emptied, name)
            same(lambda keys=keys: replicas.compare(nodes, keys), row, name)  # type: ignore[misc]
    return row


async def kill(end: Callable[[], None]) -> None:
    """Kill a node in the middle of a history."""
    await asyncio.sleep(0.2)
    end()


def change(copies: int, kind: str, faults: Sequence[str], count: int, seed: int) -> Iterator[Row]:
    """Record histories while a node is added, and another one is drained, in turn.

    Only histories with the requested faults are checked and counted.
    """
    rows = {one: Row(f"cluster with {copies} copies, write=all, {kind}", one) for one in faults}
    with members() as here:
        specs = {name: here.start(name, kind) for name in "abcd"}
        present, spare = ["a", "b", "c"], "d"
        for command in (("add", *map(specs.__getitem__, present)), ("replicas", str(copies))):
            ended = here.run(*command)
            if ended.returncode:
                raise SystemExit(ended.stderr)
        fronts = moves.proxies(here)
        known: set[str] = set(present)
        number = seed
        while any(row.histories < count for row in rows.values()):
            if len(present) == 3:
                fault, words = "added", ("add", spare if spare in known else specs[spare])
                present.append(spare)
                known.add(spare)
            else:
                spare = present.pop(0)
                fault, words = "drained", ("drain", spare)
            process = here.begin(*words)
            if fault not in rows:
                process.wait()
                continue
            name = f"seed {number}"
            asked = moves.targets(fronts, number)
            recording = asyncio.run(moves.during(process, asked, f"{kind} {number}"))
            row = rows[fault]
            row.take(recording, (), name)
            if recording.errors:
                row.violations.append(f"{row.configuration}, {fault}, {name}: {recording.errors}")
                say(row.violations[-1])
            same(lambda asked=asked: moves.compare(here, asked[0].keys), row, name)  # type: ignore[misc]
            number += 1
    yield from rows.values()


def shares(count: int, parts: int) -> list[int]:
    """Split a number into parts that are as equal as possible."""
    return [count * (part + 1) // parts - count * part // parts for part in range(parts)]


def recorded(count: int, faults: Sequence[str], kinds: Sequence[str], seed: int) -> Iterator[Row]:
    """Record histories, `count` in all, over faults, configurations and kinds of nodes."""
    of_faults = dict(zip(faults, shares(count, len(faults)), strict=True))
    for fault in filter(FAILURES.__contains__, faults):
        cases = [(promise, kind) for promise in replicas.PROMISES for kind in kinds]
        for (promise, kind), number in zip(
            cases, shares(of_faults[fault], len(cases)), strict=True
        ):
            if number:
                yield fail(promise, kind, fault, number, seed)
    wanted = [fault for fault in CHANGES if fault in of_faults]
    settings = [(copies, kind) for copies in COPIES for kind in kinds]
    most = max((of_faults[fault] for fault in wanted), default=0)
    for (copies, kind), number in zip(settings, shares(most, len(settings)), strict=True):
        if number:
            yield from change(copies, kind, wanted, number, seed)


def show(rows: Sequence[Row]) -> None:
    """Print a table."""
    print("| configuration | fault | histories | affected | operations | errors | violations |")
    print("| --- | --- | --: | --: | --: | --: | --: |")
    sums = [0] * 5
    for row in rows:
        numbers = [row.histories, row.met, row.operations, row.errors, len(row.violations)]
        sums = [one + number for one, number in zip(sums, numbers, strict=True)]
        print(
            f"| {row.configuration} | {row.fault} | {' | '.join(f'{one:,}' for one in numbers)} |"
        )
    print(f"| all | | {' | '.join(f'{one:,}' for one in sums)} |")


def main() -> int:
    """Record and check; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200, help="number of histories (default: 200)")
    parser.add_argument("--faults", default=",".join(FAULTS), help="default: %(default)s")
    parser.add_argument("--nodes", default="", help="memlite, memcached or both (default: both)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    options = parser.parse_args()
    faults = options.faults.split(",")
    unknown = set(faults).difference(FAULTS)
    if unknown:
        parser.error(f"--faults: use {', '.join(FAULTS)}, not {', '.join(sorted(unknown))}")
    kinds = options.nodes.split(",") if options.nodes else ["memlite"]
    if not options.nodes and memcached_path():
        kinds.append("memcached")
    rows: list[Row] = []
    try:
        for row in recorded(options.count, faults, kinds, options.seed):
            rows.append(row)  # noqa: PERF402 - after an interruption, the rows so far are shown
    except KeyboardInterrupt:
        say("interrupted")
    show(rows)
    return any(row.violations for row in rows)


if __name__ == "__main__":
    sys.exit(main())
