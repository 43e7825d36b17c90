"""Commands to the store, with bounded concurrency, redirections and retries."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter_ns

from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import OutOfMemoryError as StoreFullError

from memlite.backends.remote.call import Call, Turns
from memlite.backends.valkey.exchange import Arguments, Command, Late, Reply
from memlite.backends.valkey.node import LostError, Node, NotSentError
from memlite.backends.valkey.scripts import Script
from memlite.backends.valkey.topology import Topology
from memlite.core.errors import OutOfMemoryError, StorageError, UnconfirmedError

__all__ = ["LOST", "Commands"]

LOST = object()
"""The result of a change without a reply: it may have been, or may yet be, carried out."""

_MAX_TEXT = 200
_REDIRECTIONS = 5
# Replies that mean that the command was not carried out, and that a retry may succeed.
_AGAIN = (ClusterDownError, MasterDownError, ReadOnlyError, TryAgainError)
_AGAIN_WORDS = ("BUSY", "NOREPLICAS", "LOADING")
_MET_BY_SCRIPT = re.compile(r"Error running script .*@user_script: ?\d+: -(.+)")


class Commands:
    """Sends commands on one key each.

    Args:
        topology: determines the server for a key.
        concurrency: number of commands that may be in progress at once.
        deadline: seconds for a `Call`.
        confirmed: whether changes wait for replicas.

    Attributes:
        counts: commands, failures and retries, and the caller's own counts.
        turns: bounds the commands in progress, and counts them.
        confirmed: as above.
        record: called with the duration of each attempt, by command; see `Backend.measure`. Gets of
            several keys at once are not measured.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        concurrency: int,
        deadline: float,
        confirmed: bool = False,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.turns = Turns(concurrency)
        self._concurrency = concurrency
        self._topology = topology
        self._deadline = deadline
        self.confirmed = confirmed
        self.record: Callable[[str, str, int], None] | None = None

    def call(self) -> Call:
        """Return a new operation."""
        return Call(self._deadline, "store")

    async def read(
        self,
        call: Call,
        name: bytes,
        *arguments: bytes | str | int,
        begun: Reply | None = None,
    ) -> Reply:
        """Send a read-only command, and repeat it until there is a reply.

        Args:
            call: the operation it belongs to.
            name: the key that determines the server.
            arguments: the command, the key among them.
            begun: the reply to the first attempt, or its error, if it was already made.

        Raises:
            StorageError: the store refuses it, or there is no reply within the call's time.
        """
        if not self.turns.take_free():
            await self.turns.take(call)
        try:
            while True:
                reply = await self._attempt(call, name, arguments, begun=begun)
                if reply is not LOST:
                    return reply
                begun = None
                await self._pause(call)
        finally:
            self.turns.give_back()

    async def change(self, call: Call, name: bytes, command: Command) -> Reply:
        """Send a command that makes a change, and repeat it only if it was not carried out.

        Args:
            call: the operation it belongs to.
            name: the key that determines the server.
            command: the command, the key among its arguments.

        Returns:
            The reply; or `LOST`, after which the call is uncertain.

        Raises:
            OutOfMemoryError: the store has no room.
            UnconfirmedError: too few replicas have confirmed the change.
            StorageError: as for `read`.
        """
        if not self.turns.take_free():
            await self.turns.take(call)
        try:
            reply = await self._attempt(call, name, command, change=True)
        finally:
            self.turns.give_back()
        if reply is LOST:
            call.uncertain = True
        return reply

    async def run(
        self, call: Call, script: Script, name: bytes, *arguments: bytes | str | int
    ) -> Reply:
        """Run a script on one key; see `change`."""
        await self.turns.take(call)
        try:
            by_name = "EVALSHA", script.sha, 1, name, *arguments
            reply = await self._attempt(call, name, by_name, change=True)
            if isinstance(reply, NoScriptError):  # the server has never run it, or has restarted
                by_text = "EVAL", script.text, 1, name, *arguments
                reply = await self._attempt(call, name, by_text, change=True)
        finally:
            self.turns.give_back()
        if reply is LOST:
            call.uncertain = True
        return reply

    def carried_out(self, call: Call) -> None:
        """Record that a change with a lost reply was carried out.

        Raises:
            UnconfirmedError: only the reply would have shown that replicas have the change.
        """
        call.uncertain = False
        if self.confirmed:
            raise self._unconfirmed(
                call,
                f"the change was made, but may not have reached the replicas ({call.trouble})",
            )
        self.counts["lost_acknowledgements"] += 1

    async def read_many(self, names: Sequence[bytes]) -> list[Reply]:
        """Get several keys at once; a reply is `LOST` or an error if that failed."""
        call = self.call()
        replies: list[Reply] = []
        while len(replies) < len(names):
            await self.turns.take(call)
            taken = 1
            # Only free turns: holding some while waiting for more could deadlock.
            while taken < len(names) - len(replies) and self.turns.take_free():
                taken += 1
            try:
                some = names[len(replies) : len(replies) + taken]
                waiting = [self._begin(name, ("GET", name)) for name in some]
                replies += await asyncio.gather(*waiting, return_exceptions=True)
            finally:
                for _ in range(taken):
                    self.turns.give_back()
        return replies

    def _begin(self, name: bytes, arguments: Arguments) -> "asyncio.Future[Reply]":
        self.counts["commands"] += 1
        node = self._topology.node_of(name)
        if node is None or not node.breaker.lets_through():
            return _resolved(LOST)
        return node.send(arguments)

    def node_for(self, name: bytes) -> Node | None:
        """Return the server of a key; None if there is none, or it is unavailable."""
        node = self._topology.node_of(name)
        return None if node is None or node.breaker.is_open else node

    async def _attempt(
        self,
        call: Call,
        name: bytes,
        command: Command,
        *,
        change: bool = False,
        begun: Reply | None = None,
    ) -> Reply:
        """Send a command until it is carried out, refused or lost."""
        node = self._topology.node_of(name)
        asking = False
        redirections = 0
        while True:
            try:
                if begun is None:
                    reply = await self._sent(call, node, command, asking, change)
                elif isinstance(begun, NotSentError | LostError):
                    raise begun
                else:
                    reply = begun
            except UnconfirmedError as error:
                raise self._unconfirmed(call, str(error)) from None
            except NotSentError as error:
                self._note_failure()
                reply = error
            except LostError as error:
                self._note_failure()
                call.trouble = str(error)
                return LOST
            if not isinstance(reply, Exception) or isinstance(reply, NoScriptError):
                return reply
            reply = _met_by_script(reply)
            asking, begun = False, None
            if isinstance(reply, AskError) and redirections < _REDIRECTIONS:
                redirections += 1
                node = self._redirected(reply, node)
                asking = not isinstance(reply, MovedError)  # which is a subclass
                continue
            if isinstance(reply, ReadOnlyError) and node is not None:
                node.renew()  # it is no longer the master, or the name now refers to another server
            if not self._may_be_repeated(reply):
                raise self.refusal(call, reply)
            call.trouble = _text(reply)
            await self._pause(call)
            node = self._topology.node_of(name)

    def _sent(
        self, call: Call, node: Node | None, command: Command, asking: bool, change: bool
    ) -> Awaitable[Reply]:
        """Send a command once, and return an awaitable for its reply; see `Node.send`."""
        self.counts["commands"] += 1
        if node is None:
            return _resolved(ClusterDownError("no server serves this slot"))
        breaker = node.breaker
        if breaker.is_open and not breaker.lets_through():
            self._topology.suspect()
            raise call.error("unavailable")
        reply = node.send(command, asking, change)
        if self.record is None:
            return reply
        operation = command.name if isinstance(command, Late) else str(command[0]).lower()
        return self._timed(operation, reply)

    async def _timed(self, operation: str, reply: Awaitable[Reply]) -> Reply:
        assert self.record is not None  # noqa: S101 - only called while measuring
        began = perf_counter_ns()
        outcome = "failed"
        try:
            found = await reply
            outcome = "ok"
            return found
        finally:
            self.record(operation, outcome, perf_counter_ns() - began)

    def _note_failure(self) -> None:
        self.counts["failures"] += 1
        self._topology.suspect()

    def _unconfirmed(self, call: Call, text: str) -> UnconfirmedError:
        self.counts["unconfirmed"] += 1
        call.uncertain = False  # it was carried out, whatever happened to earlier attempts
        return UnconfirmedError(str(call.error(text)))

    def _redirected(self, error: AskError, node: Node | None) -> Node:
        self.counts["redirections"] += 1
        # A server may leave out its own host.
        address = (error.host or (node.address[0] if node else ""), error.port)
        if isinstance(error, MovedError):
            return self._topology.moved(error.slot_id, address)
        return self._topology.node(address)

    def _may_be_repeated(self, error: Exception) -> bool:
        if isinstance(error, NotSentError):
            return True
        if isinstance(error, _AGAIN) or str(error).startswith(_AGAIN_WORDS):
            self._topology.suspect()
            return True
        return False

    async def _pause(self, call: Call) -> None:
        await call.pause()
        self.counts["retries"] += 1

    def refusal(self, call: Call, error: Exception) -> StorageError | OutOfMemoryError:
        """Return the error for a command that the store refuses."""
        self.counts["refusals"] += 1
        if isinstance(error, StoreFullError):
            return OutOfMemoryError()
        if isinstance(error, AuthenticationError):
            return call.error("authentication failed")
        if isinstance(error, NoPermissionError):
            return call.error(f"not permitted: {_text(error)}")
        return call.error(_text(error))


def _resolved(reply: Reply) -> "asyncio.Future[Reply]":
    future = asyncio.get_running_loop().create_future()
    future.set_result(reply)
    return future


def _met_by_script(error: Exception) -> Exception:
    """Return the error met by a script, which servers before 7.0 wrap in another error."""
    found = _MET_BY_SCRIPT.match(str(error)) if isinstance(error, ResponseError) else None
    if found is None:
        return error
    word, _, rest = found[1].partition(" ")
    kind = {"OOM": StoreFullError, "READONLY": ReadOnlyError}.get(word)
    return ResponseError(found[1]) if kind is None else kind(rest)


def _text(error: Exception) -> str:
    if isinstance(error, ReadOnlyError):
        return "the server is a read-only replica (READONLY)"
    kind = "" if type(error) in (ResponseError, NotSentError) else f"{type(error).__name__}: "
    return f"{kind}{error}"[:_MAX_TEXT]
