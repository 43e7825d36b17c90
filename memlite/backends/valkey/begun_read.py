"""A read without a task: the object that takes the reply does the rest.

A task that waits for a future takes as much processor time as the rest of a read.
"""

import asyncio
from time import perf_counter_ns

from memlite.backends.base import Reader
from memlite.backends.valkey.commands import Commands
from memlite.backends.valkey.exchange import Reply
from memlite.backends.valkey.items import Items
from memlite.backends.valkey.node import Node, NotSentError

__all__ = ["BegunRead"]


class BegunRead:
    """Takes the reply to the GET of a key; see `memlite.backends.valkey.node.Promise`.

    Any outcome other than a record or its absence is left to `Items.read`, which needs a task.

    Args:
        items: parses the reply.
        commands: sends the command.
        key: the key.
        reader: receives the outcome.
    """

    __slots__ = ("_began", "_call", "_commands", "_done", "_items", "_key", "_name", "_reader")

    def __init__(self, items: Items, commands: Commands, key: bytes, reader: Reader) -> None:
        self._items = items
        self._commands = commands
        self._key = key
        self._name = items.name_of(key)
        self._reader = reader
        self._call = commands.call()
        self._began = perf_counter_ns() if commands.record is not None else 0
        self._done = False

    def begin(self) -> bool:
        """Send the command, now or at its turn; return whether it will be sent."""
        node = self._commands.node_for(self._name)
        if node is None:
            return False
        turns = self._commands.turns
        if turns.take_free():
            self._send(node)
        else:
            turns.line_up(_Turn(self), self._call.due)
        return True

    def _send(self, node: Node) -> None:
        self._commands.counts["commands"] += 1
        node.send_for(self, ("GET", self._name))

    def send(self) -> None:
        """Send the command at its turn."""
        node = self._commands.node_for(self._name)
        if node is None:
            self.set_exception(NotSentError("unavailable"))
        else:
            self._send(node)

    def give_up(self) -> None:
        """Leave the rest to `Items.read`, as the time limit expired before its turn."""
        self._done = True
        self._leave(None)

    def done(self) -> bool:
        """Return whether it has received a reply, or the reason why there is none."""
        return self._done

    def set_result(self, reply: Reply, /) -> None:
        """Take the reply."""
        self._end("ok")
        if not isinstance(reply, Exception):
            try:
                record = self._items.parsed(self._key, reply)
            except Exception:  # noqa: BLE001, S110 - it is raised again where it is reported
                pass
            else:
                self._reader.found(record)
                return
        self._leave(reply)

    def set_exception(self, error: Exception, /) -> None:
        """Take the reason why there is no reply."""
        self._end("failed")
        self._leave(error)

    def _end(self, outcome: str) -> None:
        self._done = True
        self._commands.turns.give_back()
        if self._began and self._commands.record is not None:
            self._commands.record("get", outcome, perf_counter_ns() - self._began)

    def _leave(self, begun: Reply | None) -> None:
        self._reader.unfinished(self._items.read(self._call, self._key, begun))


class _Turn:
    """Waits for the turn of a read; see `memlite.backends.remote.call.Waiter`.

    Args:
        read: the read.
    """

    __slots__ = ("_read",)

    def __init__(self, read: BegunRead) -> None:
        self._read = read

    def done(self) -> bool:
        """Return False: only the two methods below end the wait."""
        return False

    def set_result(self, turn: None, /) -> None:
        """Send the command soon; if sent immediately, failing commands would recurse."""
        asyncio.get_running_loop().call_soon(self._read.send)

    def set_exception(self, error: TimeoutError, /) -> None:
        """Report the error to the client."""
        self._read.give_up()
