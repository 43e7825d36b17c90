"""kill -9 at random moments: acknowledged changes survive, and every start succeeds.

Each writer has keys of its own and so knows their possible values: the result of the last
acknowledged command, or of one of those under way. ``MEMLITE_TEST_SEED`` repeats a run, as far as
the timing of kills allows; ``MEMLITE_TEST_CRASHES`` is the number of kills outside compactions.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import RunningServer, running

SEED_VARIABLE = "MEMLITE_TEST_SEED"
CRASHES = int(os.environ.get("MEMLITE_TEST_CRASHES", "25"))
WRITERS = 5
SECONDS = 60

State = dict[bytes, bytes]


class Killed(Exception):  # noqa: N818 - an event, not an error
    """The server has been killed."""


class Gate:
    """A lock that admits many writers, or a single one for flush_all, which affects all keys."""

    def __init__(self) -> None:
        self._inside = 0
        self._change = asyncio.Condition()
        self._closed = False

    @contextlib.asynccontextmanager
    async def shared(self):
        async with self._change:
            await self._change.wait_for(lambda: not self._closed)
            self._inside += 1
        try:
            yield
        finally:
            async with self._change:
                self._inside -= 1
                self._change.notify_all()

    @contextlib.asynccontextmanager
    async def alone(self):
        async with self._change:
            await self._change.wait_for(lambda: not self._closed)
            self._closed = True
            await self._change.wait_for(lambda: not self._inside)
        try:
            yield
        finally:
            async with self._change:
                self._closed = False
                self._change.notify_all()


class Writer:
    """Changes its own keys, several at a time.

    Attributes:
        state: the result of the acknowledged changes.
        possible: `state`, and the results of each change under way.
        acknowledged: the number of acknowledged changes.
        maybe_flushed: whether the server was killed during a flush. Commands that began after it,
            on a dead connection, do not change that.
    """

    def __init__(self, number: int, seed: str, keys: int, sizes: list[int]) -> None:
        self.keys = [b"w%d-%d" % (number, key) for key in range(keys)]
        self.state: State = {}
        self.possible: list[State] = [{}]
        self.acknowledged = 0
        self.maybe_flushed = False
        self._sizes = sizes
        self._random = random.Random(f"{seed}-{number}")

    def _change(self, state: State) -> tuple[bytes, bytes, State]:
        """Return a request, its reply, and the state after it."""
        rng = self._random
        key = rng.choice(self.keys)
        old = state.get(key)
        what = rng.choice(
            ["set", "set", "set", "add", "replace", "delete", "incr", "append", "prepend", "touch"]
        )
        value = rng.randbytes(rng.choice(self._sizes))
        if rng.random() < 0.3:
            value = b"%d" % rng.randrange(10**9)
        done, missing = b"STORED", b"NOT_STORED"
        new: bytes | None = value
        match what:
            case "add":
                done, new = (done, value) if old is None else (missing, old)
            case "replace" | "append" | "prepend" if old is None:
                done, new = missing, None
            case "append":
                new = (old or b"") + value[:100]
            case "prepend":
                new = value[:100] + (old or b"")
            case "delete":
                done, new = (b"NOT_FOUND" if old is None else b"DELETED"), None
            case "touch":
                exptime = rng.choice([b"0", b"1000", b"-1"])
                done = b"NOT_FOUND" if old is None else b"TOUCHED"
                new = None if exptime == b"-1" else old
                return b"touch %b %b\r\n" % (key, exptime), done + b"\r\n", _with(state, key, new)
            case "incr":
                new = old
                if old is None:
                    done = b"NOT_FOUND"
                elif old.isdigit() and len(old) < 19:
                    done = new = b"%d" % (int(old) + 7)
                else:  # not for numbers: choose another change
                    return self._change(state)
                return b"incr %b 7\r\n" % key, done + b"\r\n", _with(state, key, new)
        if what == "delete":
            request = b"delete %b\r\n" % key
        else:
            sent = value[:100] if what in ("append", "prepend") else value
            request = b"%b %b 0 0 %d\r\n%b\r\n" % (what.encode(), key, len(sent), sent)
        return request, done + b"\r\n", _with(state, key, new)

    async def write(self, port: int, gate: Gate) -> None:
        """Write until the server is killed."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        except OSError:
            raise Killed from None
        try:
            while True:
                async with gate.shared():
                    if self._random.random() < 0.2:
                        await self._cas(reader, writer)
                    else:
                        await self._pipeline(reader, writer)
        finally:
            writer.transport.abort()

    async def _pipeline(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests, replies, states = [], [], [self.state]
        for _ in range(self._random.choice([1, 1, 3, 10])):
            request, reply, state = self._change(states[-1])
            requests.append(request)
            replies.append(reply)
            states.append(state)
        self.possible = states
        writer.write(b"".join(requests))
        for at, reply in enumerate(replies):
            line = await _line(reader)
            assert line == reply, (requests[at][:100], line)
            self.state = states[at + 1]
            self.possible = states[at + 1 :]
            self.acknowledged += 1

    async def _cas(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = self._random.choice(self.keys)
        writer.write(b"gets %b\r\n" % key)
        head = await _line(reader)
        if head == b"END\r\n":
            assert key not in self.state
            return
        _, _, _, size, unique = head.split()
        with _killed_by_end():
            value = (await reader.readexactly(int(size) + len(b"\r\nEND\r\n")))[: int(size)]
        assert value == self.state.get(key)
        new = self._random.randbytes(10)
        self.possible = [self.state, _with(self.state, key, new)]
        writer.write(b"cas %b 0 0 10 %b\r\n%b\r\n" % (key, unique, new))
        assert await _line(reader) == b"STORED\r\n"
        self.state = self.possible[1]
        self.possible = [self.state]
        self.acknowledged += 1

    async def flush(self, reader, writer, everybody: "list[Writer]") -> None:
        """Flush everything, while no writer waits for a reply."""
        for one in everybody:
            one.maybe_flushed = True
        writer.write(b"flush_all\r\n")
        assert await _line(reader) == b"OK\r\n"
        for one in everybody:
            one.maybe_flushed = False
            one.state = {}
            one.possible = [{}]

    def check(self, server: RunningServer) -> None:
        """Compare the state with the items on the server, and continue from these."""
        found = {}
        with server.connect() as wire:
            for key in self.keys:
                wire.send(b"get %b\r\n" % key)
                head = wire.line()
                if head != b"END\r\n":
                    size = int(head.split()[3])
                    found[key] = wire.exactly(size + len(b"\r\nEND\r\n"))[:size]
        possible = [*self.possible, {}] if self.maybe_flushed else self.possible
        if found not in possible:
            for state in possible:
                differing = {
                    key: (_short(state.get(key)), _short(found.get(key)))
                    for key in self.keys
                    if state.get(key) != found.get(key)
                }
                print("expected and found:", differing)  # noqa: T201 - pytest shows it
            raise AssertionError("what was acknowledged is not what is there")
        self.state = found
        self.possible = [found]
        self.maybe_flushed = False


def _with(state: State, key: bytes, value: bytes | None) -> State:
    state = {**state}
    state.pop(key, None)
    if value is not None:
        state[key] = value
    return state


def _short(value: bytes | None) -> object:
    return value if value is None or len(value) < 40 else (len(value), value[:20])


@contextlib.contextmanager
def _killed_by_end() -> Iterator[None]:
    try:
        yield
    except (asyncio.IncompleteReadError, OSError):
        raise Killed from None


async def _line(reader: asyncio.StreamReader) -> bytes:
    with _killed_by_end():
        line = await reader.readline()
    if not line.endswith(b"\n"):
        raise Killed
    return line


class Crashes:
    """Repeatedly starts and kills a server on one file.

    Attributes:
        folder: the folder of the file.
        inside: the number of kills during a compaction.
    """

    def __init__(
        self, folder: Path, seed: str, *options: str, compact: int, keys: int, sizes: list[int]
    ) -> None:
        self.folder = folder
        self.inside = 0
        self._options = options
        self._url = f"file://{folder}/cache.json?compact={compact}"
        self._random = random.Random(seed)
        self.writers = [Writer(number, seed, keys, sizes) for number in range(WRITERS)]

    @property
    def _compacting(self) -> bool:
        return (self.folder / "cache.json.tmp").exists()

    def round(self, longest: float, *, compacting: bool = False) -> None:
        """Start a server, check its items, write, and kill it.

        Args:
            longest: the maximum number of seconds before the kill.
            compacting: kill soon after a compaction has begun, if one begins.
        """
        with running("memlite", "--backend", self._url, *self._options) as server:
            for writer in self.writers:
                writer.check(server)
            asyncio.run(self._write_and_kill(server, longest, compacting))
            server.process.wait()
        self.inside += self._compacting

    async def _write_and_kill(
        self, server: RunningServer, longest: float, compacting: bool
    ) -> None:
        gate = Gate()
        tasks = [asyncio.ensure_future(writer.write(server.port, gate)) for writer in self.writers]
        tasks.append(asyncio.ensure_future(self._flush_now_and_then(server.port, gate)))
        if compacting:
            loop = asyncio.get_running_loop()
            until = loop.time() + longest
            while loop.time() < until and not self._compacting:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.001)
            longest = 0.05
        await asyncio.sleep(self._random.uniform(0.001, longest))
        server.process.kill()
        async with asyncio.timeout(SECONDS):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if not isinstance(result, Killed):
                raise result if result is not None else AssertionError("a writer stopped")

    async def _flush_now_and_then(self, port: int, gate: Gate) -> None:
        await asyncio.sleep(self._random.uniform(0.01, 0.6))
        with _killed_by_end():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with gate.alone():
                await self.writers[0].flush(reader, writer, self.writers)
            while True:  # the rest of the round without compaction
                writer.write(b"version\r\n")
                await _line(reader)
                await asyncio.sleep(0.02)
        finally:
            writer.transport.abort()

    def finish(self) -> None:
        """Check the items twice more: the first start may have compacted the file."""
        for _ in range(2):
            with running("memlite", "--backend", self._url, *self._options) as server:
                for writer in self.writers:
                    writer.check(server)
                assert server.stop() == 0
        assert sum(writer.acknowledged for writer in self.writers) > 100


@pytest.fixture
def seed() -> str:
    """Return the run's seed; it is printed, so pytest shows it if the test fails."""
    seed = os.environ.get(SEED_VARIABLE) or str(random.SystemRandom().randrange(10**9))
    print(f"{SEED_VARIABLE}={seed}")  # noqa: T201
    return seed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_acknowledged_changes_survive_kills(tmp_path, seed):
    crashes = Crashes(tmp_path, seed, compact=100_000, keys=12, sizes=[0, 10, 100, 3000])
    for _ in range(CRASHES):
        crashes.round(0.25)
    crashes.finish()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_acknowledged_changes_survive_kills_during_compaction(tmp_path, seed):
    crashes = Crashes(
        tmp_path, seed, "-m", "1024", compact=1000, keys=20, sizes=[10_000, 200_000, 400_000]
    )
    for number in range(150):  # on a busy machine most kills come before or after
        crashes.round(1.3, compacting=True)
        if number >= 9 and crashes.inside >= 5:
            break
    crashes.finish()
    assert crashes.inside


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("durability", ["everysec", "none"])
def test_a_kill_loses_nothing_with_other_durabilities_either(tmp_path, seed, durability):
    """Only the process is killed, not the machine: the system has all written data."""
    crashes = Crashes(
        tmp_path, seed, "--durability", durability, compact=100_000, keys=12, sizes=[0, 100, 3000]
    )
    for number in range(10):
        crashes.round(1.3 if number % 5 == 4 else 0.25)
    crashes.finish()
