"""Processes that write to one shared table and are killed: run as a program.

    python -m tests.support.shared_writers pure|native|runner KILLS SEED MEGABYTES [KEYS [-M]]

Each worker has KEYS keys of its own, and stores values with increasing numbers under them. It notes
a number once its store has returned, and 0 before it deletes. All workers read all keys: a value
must be whole, and its number at least the one noted before the read. It must also exist, unless all
keys together exceed the memory. With -M, each store must find room. The table is in a file: at the
end, another process, with another hash, must find the same items in it. With `runner`, workers send
commands, which are carried out in C.
"""

import contextlib
import fcntl
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zlib

from memlite.core.clock import Clock
from memlite.engine.shared import SharedItems
from memlite.engine.shared_plain import PlainSharedEngine
from memlite.memory import Part
from memlite.memory.item import wire_form
from memlite.memory.shared import Mapping, MemoryFile, native
from memlite.memory.shared.layout import KEEP
from memlite.memory.shared.mapping import SharedTable
from memlite.server.execution.records import make_shared_runner
from memlite.telemetry.counters import Counters

WORKERS = 3
KEYS = 40
"""The default number of keys for each worker."""
MOST = 500
"""An upper bound for the size of an item, in bytes."""
FAILED = 3
LATER = 2.0**40


class ByCommands:
    """A table accessed through commands, as far as `work` needs it.

    Args:
        mapping: the mapping that holds the table.
    """

    def __init__(self, mapping: Mapping) -> None:
        counters = Counters()
        counters.until_slow_sample = 1 << 60  # reads until the next one is left to the parser
        items = SharedItems(mapping, mapping.layout.size)
        runner = make_shared_runner(PlainSharedEngine(items, Clock(), counters), 20)
        assert runner is not None
        self._runner = runner
        table = self._table = mapping.table
        self.attach, self.hold, self.get, self.release = (
            table.attach, table.hold, table.get, table.release,
        )  # fmt: skip

    def _send(self, data: bytes) -> bytes:
        out: list[Part] = []
        reply = self._runner.text(data, out)
        return b"".join(out) if reply is None else reply

    def find(self, line: bytes) -> bytes | None:
        reply = self._send(line)
        return None if reply == b"END\r\n" else reply

    def store(
        self, line: bytes, wire: bytes, expires: float, unique: int | None, kind: int, extra: bytes
    ) -> int:
        if kind:
            return self._table.store(line, wire, expires, unique, kind, extra)
        value = wire.partition(b"\r\n")[2][: -len(b"\r\nEND\r\n")]
        reply = self._send(b"set %b 0 0 %d\r\n%b\r\n" % (line[4:-2], len(value), value))
        return int(reply == b"STORED\r\n")

    def delete(self, line: bytes, unique: None) -> None:
        self._send(b"delete " + line[4:])

    def touch(self, line: bytes, expires: float) -> None:
        self._send(b"touch %b 100000\r\n" % line[4:-2])


Writable = SharedTable | ByCommands


def line(key: int) -> bytes:
    return b"get key-%d\r\n" % key


def value(key: int, number: int, length: int) -> bytes:
    body = b"%d %d " % (key, number) * (length // 4 + 1)
    return b"%08x %b" % (zlib.crc32(body), body)


def check(key: int, reply: bytes) -> int:
    """Return the number of a value, which must be whole."""
    head, _, rest = reply.partition(b"\r\n")
    body = rest[: -len(b"\r\nEND\r\n")]
    words = head.split(b" ")
    assert words[1] == b"key-%d" % key, reply[:60]
    assert int(words[3]) == len(body), reply[:60]
    assert b"%08x" % zlib.crc32(body[9:]) == body[:8], reply[:60]
    return int(body.split(b" ", 3)[2])


def work(table: Writable, worker: int, noted: memoryview, seed: int, *, evicts: bool) -> None:
    chance = random.Random(seed)
    table.attach(worker)
    count = len(noted) // 2
    while True:
        key = chance.randrange(count)
        before = noted[key]
        reply = table.find(line(key))
        if reply is not None:
            assert check(key, reply) >= before
        else:
            assert evicts or before == 0 or noted[key] != before, f"key {key} is lost"
        key = chance.randrange(count // WORKERS) * WORKERS + worker
        number = noted[count + key] + 1
        noted[count + key] = number  # used up, whether the store succeeds or not
        new = value(key, number, chance.randrange(400))
        wire = wire_form(b"key-%d" % key, 0, new)
        what = chance.random()
        if what < 0.1:
            noted[key] = 0
            table.delete(line(key), None)
        elif what < 0.2:
            table.touch(line(key), LATER)
        if what < 0.8:
            assert table.store(line(key), wire, 0.0, None, 0, b"") > 0
        else:
            extend(table, key, wire)
        noted[key] = number


def extend(table: Writable, key: int, wire: bytes) -> None:
    """Store a value as append does: no other process changes the key meanwhile."""
    table.hold(line(key), len(wire))
    found = table.get(line(key))
    if found is not None:
        check(key, found[0])
    assert table.store(line(key), wire, 0.0, found and found[2], KEEP, b"") > 0
    table.release()


def spawn(table: Writable, worker: int, noted: memoryview, seed: int, *, evicts: bool) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work(table, worker, noted, seed, evicts=evicts)
    except BaseException:  # noqa: BLE001 - this process ends here
        traceback.print_exc()
    os._exit(FAILED)


def open_table(file: MemoryFile, kind: str, megabytes: int) -> Mapping:
    size = megabytes << 20
    return Mapping(size, size // 64, WORKERS, compiled=kind != "pure", file=file)


def contents(mapping: Mapping) -> str:
    keys = sorted(mapping.list_keys(), key=lambda key: int(key[4:]))
    found = [mapping.table.find(b"get %b\r\n" % key) for key in keys]
    for key, reply in zip(keys, found, strict=True):
        assert reply is not None
        check(int(key[4:]), reply)
    return f"{len(mapping)} items, {zlib.crc32(repr(found).encode()):08x}"


def reopen(path: str, kind: str, megabytes: int) -> None:
    mapping = open_table(MemoryFile(path), kind, megabytes)
    assert mapping.kept is not None, mapping.refused
    mapping.verify()
    print(contents(mapping))  # noqa: T201


def main(
    path: str, kind: str, kills: int, seed: int, megabytes: int, keys: int = KEYS, *, refuses: bool
) -> None:
    count = WORKERS * keys
    evicts = count * MOST > megabytes << 20
    file = MemoryFile(path)
    mapping = open_table(file, kind, megabytes)
    mapping.table.evicts = not refuses
    table = ByCommands(mapping) if kind == "runner" else mapping.table
    noted = memoryview(mmap.mmap(-1, 8 * 2 * count)).cast("Q")
    chance = random.Random(seed)

    def start(worker: int) -> int:
        number = chance.randrange(1 << 30)
        return spawn(table, worker, noted, number, evicts=evicts)

    children = [start(worker) for worker in range(WORKERS)]
    try:
        for _ in range(kills):
            time.sleep(chance.random() * 0.004)
            worker = chance.randrange(WORKERS)
            os.kill(children[worker], signal.SIGKILL)
            _, status = os.waitpid(children[worker], 0)
            assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
            children[worker] = start(worker)
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                _, status = os.waitpid(child, 0)
                assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    for worker in range(WORKERS):
        mapping.table.attach(worker)
    # A lock left by a killed process is cleaned up by the next process that takes it.
    for key in range(12_000):
        mapping.table.touch(b"get %d\r\n" % key, 0.0)
    mapping.verify()
    lost = [key for key in range(count) if noted[key] and not mapping.table.find(line(key))]
    assert evicts or not lost, f"keys {lost} are lost"
    written = sum(noted[count:])
    before = contents(mapping)
    mapping.close(time.time())
    fcntl.flock(file.descriptor, fcntl.LOCK_UN)
    other = "native" if kind == "pure" and native() is not None else "pure"
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.shared_writers", other, path, str(megabytes)],
        stdout=subprocess.PIPE, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == before, (done.stdout, before)
    print(f"{kills} kills, {written} writes, {before}")  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) == 4:
        reopen(sys.argv[2], sys.argv[1], int(sys.argv[3]))
    else:
        words = [word for word in sys.argv[2:] if word != "-M"]
        with tempfile.NamedTemporaryFile(prefix="memlite-table-", dir="/dev/shm") as place:
            main(place.name, sys.argv[1], *map(int, words), refuses="-M" in sys.argv)
