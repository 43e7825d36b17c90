"""Clients that send random commands to real servers, and record what they observe."""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from memlite import client
from memlite.client import Connection, ConnectionLostError, OutcomeUnknownError, Reply, Shape
from tests.support.linearizability.history import EVERY_KEY, NEVER, Operation, Result

__all__ = ["OPERATIONS", "Mix", "Recording", "Target", "record"]

OPERATIONS = int(os.environ.get("MEMLITE_TEST_HISTORY_OPERATIONS", "500"))
"""The minimum number of operations in a history of the slow tests."""

Mix = Mapping[str, int]
"""How often each command is sent, relative to the others."""

# Errors after which a change may or may not have been made. After other errors it was not.
_DOUBT = b"may or may not have been made"
_BUG = b"internal error"
_RECONNECT_SECONDS = 0.01
_TIMEOUT_SECONDS = 30.0


@dataclass
class Target:
    """A server.

    Attributes:
        name: for the record.
        port: returns its port; it may be down.
        keys: the keys that its clients use.
        mix: the commands that they send.
        clients: the number of clients; each sends one command at a time.
        certain: whether an error means that a command was not carried out, unless stated otherwise.
        final: whether a command without a reply can no longer be carried out once the connection is
            lost, because the only server was killed.
        pause: seconds between two commands of a client, on average.
    """

    name: str
    port: Callable[[], int]
    keys: Sequence[bytes]
    mix: Mix
    clients: int = 3
    final: bool = False
    certain: bool = True
    pause: float = 0.0


@dataclass
class Recording:
    """The observations of a run.

    Attributes:
        history: the operations.
        errors: the error replies, with their counts.
        refused: commands that were answered with an error, and so should not have been carried out.
        bugs: replies that no server should send.
    """

    history: list[Operation] = field(default_factory=list)
    errors: Counter[bytes] = field(default_factory=Counter)
    refused: list[Operation] = field(default_factory=list)
    bugs: list[str] = field(default_factory=list)

    @property
    def unknown(self) -> int:
        """The number of operations that may or may not have been carried out."""
        return sum(operation.result is None for operation in self.history)


async def record(
    targets: Sequence[Target],
    seed: str,
    seconds: float,
    *,
    least: int = 0,
    going_on: Callable[[], bool] = lambda: False,
) -> Recording:
    """Send commands to all targets for some seconds, and return the observations.

    Args:
        targets: the servers.
        seed: the seed of the clients' choices. Which of them overlap depends on the machine.
        seconds: the minimum duration.
        least: the minimum number of operations.
        going_on: returns whether something is still in progress that must be recorded to its end.
    """

    def more() -> bool:
        early = time.monotonic() - began < seconds or len(recording.history) < least
        return early or going_on()

    recording = Recording()
    began = time.monotonic()
    clients = [
        _Client(f"{target.name}/{number}", target, seed, recording, began)
        for target in targets
        for number in range(target.clients)
    ]
    async with asyncio.TaskGroup() as group:
        for one in clients:
            group.create_task(one.run(more))
    return recording


class _Client:
    def __init__(
        self, name: str, target: Target, seed: str, recording: Recording, began: float
    ) -> None:
        self._name = name
        self._target = target
        self._random = random.Random(f"{seed}/{name}")
        self._recording = recording
        self._began = began
        self._connection: Connection | None = None
        self._number = 0
        self._uniques: dict[bytes, int] = {}  # by key, as last seen

    def _now(self) -> float:
        return time.monotonic() - self._began

    async def run(self, more: Callable[[], bool]) -> None:
        mix = self._target.mix
        names, weights = list(mix), list(mix.values())
        try:
            while more():
                (name,) = self._random.choices(names, weights)
                await self._operate(name, self._random.choice(self._target.keys))
                if self._target.pause:
                    await asyncio.sleep(self._random.expovariate(1 / self._target.pause))
        finally:
            await self._disconnect()

    async def _operate(self, name: str, key: bytes) -> None:
        if name == "cas" and key not in self._uniques:
            name = "gets"
        if name in ("append", "prepend") and key.startswith(b"n"):
            name = "set"  # otherwise it would soon cease to be a number
        value = self._value(name, key)
        unique = self._uniques.pop(key, 0) if name == "cas" else 0
        if name == "flush_all":
            key = EVERY_KEY
        connection = await self._connected()
        if connection is None:
            return
        request, shape = self._request(name, key, value, unique)
        invoked = self._now()
        result: Result | None = None
        try:
            result = self._result(key, await connection.request(request, shape))
        except OutcomeUnknownError:
            await self._disconnect()
        except ConnectionLostError:
            await self._disconnect()
            return
        unknown = result is None and not self._target.final
        returned = NEVER if unknown else self._now()
        operation = Operation(self._name, name, key, invoked, returned, result, value, unique)
        if result is not None and result.word.startswith("SERVER_ERROR"):
            self._recording.refused.append(operation)
        elif result is not None or name not in _READS:
            self._recording.history.append(operation)

    def _value(self, name: str, key: bytes) -> bytes:
        """Return a value that no other operation stores; numbers for keys that begin with n."""
        self._number += 1
        if name == "incr":
            return b"1"
        if name not in _STORES:
            return b""
        if key.startswith(b"n"):
            return b"%d" % self._random.randrange(10**9, 10**10)
        return b"<%b.%d>" % (self._name.encode(), self._number)

    def _request(self, name: str, key: bytes, value: bytes, unique: int) -> tuple[bytes, Shape]:
        match name:
            case "get" if self._random.random() < 0.3:
                return b"mg %b v\r\n" % key, Shape.META
            case "get" | "gets":
                return b"%b %b\r\n" % (name.encode(), key), Shape.ITEMS
            case "gat":
                return b"gat 0 %b\r\n" % key, Shape.ITEMS
            case "touch":
                return b"touch %b 0\r\n" % key, Shape.LINE
            case "incr":
                return b"incr %b %b\r\n" % (key, value), Shape.LINE
            case "delete":
                return b"delete %b\r\n" % key, Shape.LINE
            case "flush_all":
                return b"flush_all\r\n", Shape.LINE
        more = b" %d" % unique if name == "cas" else b""
        head = b"%b %b 0 0 %d%b\r\n" % (name.encode(), key, len(value), more)
        return head + value + b"\r\n", Shape.LINE

    def _result(self, key: bytes, reply: Reply) -> Result | None:
        """Return the result; None if the command may or may not have been carried out."""
        error = reply.error
        if error is not None and error.startswith(b"SERVER_ERROR"):
            self._recording.errors[error] += 1
            if _BUG in error:
                self._recording.bugs.append(f"{self._name}: {error.decode()}")
            doubt = not self._target.certain or _DOUBT in error
            return None if doubt else Result(error.decode())
        if reply.items:
            (item,) = reply.items
            if item.unique is not None:
                self._uniques[key] = item.unique
            return Result("HIT", item.value, item.unique)
        word = reply.line.split(b" ")[0].decode()
        if word.isdigit():
            return Result("NUMBER", word.encode())
        return Result("MISS" if word in ("END", "EN") else word)

    async def _connected(self) -> Connection | None:
        if self._connection is None:
            try:
                address = client.parse_address(f"127.0.0.1:{self._target.port()}")
                self._connection = await client.connect(address, timeout=_TIMEOUT_SECONDS)
            except OSError:  # the server is down, and will come back
                await asyncio.sleep(_RECONNECT_SECONDS)
        return self._connection

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


_READS = frozenset(("get", "gets"))
_STORES = frozenset(("set", "add", "replace", "append", "prepend", "cas"))
