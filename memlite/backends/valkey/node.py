"""One server of the store: commands to it are sent in batches, over a few connections.

A command waits until a connection is free, and is sent together with all other waiting commands.
This takes a sixth of the processor time of one connection per command in progress, and no timer:
under load, batches grow by themselves.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as NoConnectionError
from redis.exceptions import RedisError, ResponseError

from memlite.backends.remote.breaker import Breaker
from memlite.backends.remote.call import TimeLimits
from memlite.backends.valkey.exchange import (
    MISSING,
    Arguments,
    Command,
    Late,
    Replies,
    Reply,
    send,
)
from memlite.core.errors import UnconfirmedError

__all__ = [
    "Address",
    "Confirmation",
    "LostError",
    "Node",
    "NotSentError",
    "Promise",
]

Address = tuple[str, int]

# Connections to a server per queue, and the number of waiting commands at which another is used.
_CONNECTIONS = 4
_ANOTHER_FROM = 32
_AT_ONCE = 64
# Seconds without traffic after which a connection is checked before it is used again.
_IDLE = 1.0
# The minimum number of seconds between two renewals of connections, see `Node.renew`.
_RENEWALS = 0.1
_FAILURES = (RedisError, OSError, EOFError, TimeoutError)


class Promise(Protocol):
    """Receives a reply: a future, or an object notified without a turn of the event loop."""

    def done(self) -> bool:
        """Return whether it has received one."""

    def set_result(self, reply: Reply, /) -> None:
        """Take the reply."""

    def set_exception(self, error: Exception, /) -> None:
        """Take the reason why there is none."""


# A command, the receiver of its reply, and whether to announce it with ASKING.
_Request = tuple[Command, Promise, bool]


class NotSentError(Exception):
    """A command was not sent, and not carried out."""


class LostError(Exception):
    """A command was sent without a reply: it may have been, or may yet be, carried out."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The confirmation that changes wait for; see https://valkey.io/commands/wait.

    Attributes:
        replicas: how many must have confirmed a change.
        seconds: how long they may take.
    """

    replicas: int
    seconds: float

    @property
    def arguments(self) -> Arguments:
        """The command that waits for it, after changes on the same connection."""
        return "WAIT", self.replicas, round(self.seconds * 1000)

    def missed(self, replicas: object) -> UnconfirmedError:
        """Return the error for a change that only this number of replicas have confirmed."""
        return UnconfirmedError(
            f"the change was made, but only {replicas} of {self.replicas} replicas confirmed it "
            f"within {self.seconds:g} s: a failover may undo it"
        )


class _Link:
    """A connection, its time of last use, and when it was opened, in monotonic seconds."""

    __slots__ = ("connection", "since", "used")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.used = self.since = 0.0


class _Queue:
    """Waiting commands, and the tasks that send them, each over a connection of its own.

    Args:
        confirmation: the confirmation that each batch waits for.
    """

    __slots__ = ("confirmation", "lanes", "waiting")

    def __init__(self, confirmation: Confirmation | None = None) -> None:
        self.confirmation = confirmation
        self.waiting: deque[_Request] = deque()
        self.lanes: set[asyncio.Task[None]] = set()


class Node:
    """A server, and the connections to it.

    Args:
        address: host and port.
        connect: creates a connection, which is not connected yet.
        limits: ends batches that take too long.
        timeout: seconds for a batch, including connecting but not the wait for replicas.
        confirmation: the confirmation that changes wait for; None for none.
        only_master: whether not to use a server that is a replica; in a cluster, a replica reports
            that itself.

    Attributes:
        address: as above.
        breaker: informed of the outcome of every batch; senders consult it first.
    """

    def __init__(
        self,
        address: Address,
        connect: Callable[[], Connection],
        limits: TimeLimits,
        timeout: float,
        *,
        confirmation: Confirmation | None = None,
        only_master: bool = False,
    ) -> None:
        self.address = address
        self.breaker = Breaker(f"the store at {address[0]}:{address[1]}")
        self._connect = connect
        self._limits = limits
        self._timeout = timeout
        self._only_master = only_master
        self._reads = self._changes = _Queue()
        if confirmation is not None:
            self._changes = _Queue(confirmation)  # otherwise reads would wait for replicas, too
        self._free: list[_Link] = []
        self._renewed = 0.0  # when connections were last told to connect again
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def send(
        self, command: Command, asking: bool = False, change: bool = False
    ) -> asyncio.Future[Reply]:
        """Send a command.

        Args:
            command: the command.
            asking: whether to announce it with ASKING, as a redirection demanded.
            change: whether it makes a change, which replicas may have to confirm.

        Returns:
            A future of the reply. It raises `NotSentError`, `LostError` or `UnconfirmedError`, at
            the latest after the time limits of the batches before this one and of its own.
        """
        reply = self._loop.create_future()
        self.send_for(reply, command, asking, change)
        return reply

    def send_for(
        self, promise: Promise, command: Command, asking: bool = False, change: bool = False
    ) -> None:
        """Send a command and pass the reply to `promise`; see `send`."""
        if self._closed:  # another server has taken over since the caller looked
            promise.set_exception(NotSentError("it is no longer in use"))
            return
        queue = self._changes if change else self._reads
        queue.waiting.append((command, promise, asking))
        lanes = len(queue.lanes)
        if not lanes or (lanes < _CONNECTIONS and len(queue.waiting) >= _ANOTHER_FROM * lanes):
            self._open_lane(queue)

    def _open_lane(self, queue: _Queue) -> None:
        link = self._free.pop() if self._free else _Link(self._connect())
        queue.lanes.add(self._loop.create_task(self._run(queue, link)))

    def renew(self) -> None:
        """Reconnect before the next command, as the name may now refer to another server."""
        if monotonic() - self._renewed >= _RENEWALS:
            self._renewed = monotonic()

    async def close(self) -> None:
        """Close all connections; commands in progress are lost, and further ones not sent."""
        self._closed = True
        lanes = self._reads.lanes | self._changes.lanes
        for lane in lanes:
            lane.cancel()
        if lanes:
            await asyncio.wait(lanes)
        for queue in (self._reads, self._changes):
            self._end(list(queue.waiting), NotSentError("closed"))
            queue.waiting.clear()
        for link in self._free:
            await link.connection.disconnect(nowait=True)
        self._free.clear()

    async def _run(self, queue: _Queue, link: _Link) -> None:
        """Send waiting commands until there are none."""
        waiting, confirmation = queue.waiting, queue.confirmation
        try:
            while waiting:
                batch = [waiting.popleft() for _ in range(min(len(waiting), _AT_ONCE))]
                try:
                    await self._exchange(link, batch, confirmation)
                finally:
                    self._end(batch, LostError("closed"))
                link.used = monotonic()
        finally:
            # At once: with a callback, commands queued before it runs would not start another lane.
            lane = asyncio.current_task()
            assert lane is not None  # noqa: S101 - for the type checker
            queue.lanes.discard(lane)
            if link.connection.is_connected:
                self._free.append(link)
            if waiting and not (queue.lanes or lane.cancelling()):  # a bug has ended it
                self._open_lane(queue)

    async def _exchange(
        self,
        link: _Link,
        batch: Sequence[_Request],
        confirmation: Confirmation | None,
    ) -> None:
        connection, now = link.connection, monotonic()
        due = now + self._timeout
        try:
            if (
                not connection.is_connected
                or now - link.used > _IDLE
                or link.since <= self._renewed
            ):
                await self._limits.run(self._prepare(link), due)
        except _FAILURES as error:
            await connection.disconnect(nowait=True)
            self.breaker.failed()
            self._end(batch, NotSentError(f"cannot connect: {_reason(error)}"))
            return
        if confirmation:
            due += confirmation.seconds  # missing replicas do not mean that the server is dead
        try:
            await self._limits.run(self._talk(connection, batch, confirmation), due)
        except _FAILURES as error:
            await connection.disconnect(nowait=True)
            self.breaker.failed()
            self._end(batch, LostError(_reason(error)))
            return
        except BaseException:  # unread replies must not be taken for those of later commands
            await connection.disconnect(nowait=True)
            raise
        if self.breaker.recent_failures:
            self.breaker.succeeded()

    async def _prepare(self, link: _Link) -> None:
        """Connect, unless the connection is still open and need not be renewed."""
        connection = link.connection
        # Readable data without a request means that the connection was closed.
        if connection.is_connected and (link.since <= self._renewed or await connection.can_read()):
            await connection.disconnect(nowait=True)
        if not connection.is_connected:
            link.since = monotonic()
            await connection.connect()
            # A server that is still loading its data reports that here, before any command is sent.
            await connection.send_command("PING", check_health=False)
            await connection.read_response()
            if self._only_master:
                await self._check_role(connection)

    async def _check_role(self, connection: Connection) -> None:
        await connection.send_command("ROLE", check_health=False)
        role = await connection.read_response()
        if role[0] != b"master":
            raise NoConnectionError("it is no longer the master")

    async def _talk(
        self,
        connection: Connection,
        batch: Sequence[_Request],
        confirmation: Confirmation | None,
    ) -> None:
        commands: list[Arguments] = []
        for command, _, asking in batch:
            if asking:
                commands.append(("ASKING",))
            commands.append(command.made() if isinstance(command, Late) else command)
        if confirmation:
            commands.append(confirmation.arguments)
        await send(connection, commands)
        replies = Replies(connection)
        if confirmation:
            await _confirmed(replies, batch, confirmation)
            return
        for _, future, asking in batch:
            if asking:
                await replies.next()
            reply = replies.arrived()
            if reply is MISSING:
                reply = await replies.next()
            if not future.done():
                future.set_result(reply)

    def _end(self, batch: Sequence[_Request], error: Exception) -> None:
        for _, reply, _ in batch:
            if not reply.done():
                reply.set_exception(error)


async def _confirmed(
    replies: Replies, batch: Sequence[_Request], confirmation: Confirmation
) -> None:
    """Pass on the replies to changes, once it is known whether replicas have confirmed them."""
    found = []
    for _, _, asking in batch:
        if asking:
            await replies.next()
        found.append(await replies.next())
    replicas = await replies.next()
    if isinstance(replicas, ResponseError):
        raise replicas
    assert isinstance(replicas, int)  # noqa: S101 - as WAIT returns it
    for (_, future, _), reply in zip(batch, found, strict=True):
        if future.done():
            continue
        # The command changed nothing if it was refused, or if its condition did not hold.
        unchanged = not reply or isinstance(reply, ResponseError)
        if unchanged or replicas >= confirmation.replicas:
            future.set_result(reply)
        else:
            future.set_exception(confirmation.missed(replicas))


def _reason(error: BaseException) -> str:
    """Return what went wrong, in a few words."""
    if isinstance(error, TimeoutError):
        return "timed out"
    inner = error.__cause__ or error.__context__
    if isinstance(inner, OSError) and inner.errno and inner.errno > 0:
        return os.strerror(inner.errno)  # asyncio's own texts repeat the address
    return str(error) or type(error).__name__
