"""Requests that arrive alone, without an object for each; in C if the module was built.

The two implementations differ only in speed.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from memlite.proxy.framing import NATIVE
from memlite.server.connections.native_receiver import descriptor

__all__ = ["HAND_OUT", "Lone", "LoneInPython", "writer_of"]


class LoneInPython:
    """Stands for a client's lone request, and receives its reply.

    Args:
        executor: the client's; it has the methods `answer` and `fail`, and `wrote`, which is called
            when the client has stopped reading.

    Attributes:
        executor: the same; None once the client has disconnected and its request was answered.
        alone: whether a lone request is in progress.
        reads: whether it changes nothing.
        write: writes a reply to the client, if nothing else is to be done with it; None otherwise.
            It may become None after a call, if the client has stopped reading.
        counters: counts the bytes written by `write`.
        by_line: the nodes of gets, by their lines; None if no more requests are taken alone.
        nodes: the nodes of keys, for sets; None likewise.
        most: maximum bytes of a value that is forwarded by this object.
        others: the client's requests that are not alone.
        out: replies that wait for the connection.
        due: whether the executor is in `dues`.
        progresses: whether the executor is in `partly`.
        dues: the cluster's list of executors that have replies to deliver.
        partly: the cluster's list of executors that have some of the replies to a batch.
        turns: decides which requests are traced; None if none are.
        timing: holds the times of requests.
        since: when the client was replied to, in nanoseconds, if its next request is timed; else 0.
    """

    __slots__ = (
        "alone", "by_line", "counters", "due", "dues", "executor", "most", "nodes", "others", "out",
        "partly", "progresses", "reads", "since", "timing", "turns", "write",
    )  # fmt: skip

    def __init__(self, executor: Any) -> None:
        self.executor = executor
        self.alone = False
        self.reads = True
        self.write: Any = None
        self.counters: Any = None
        self.by_line: Any = None
        self.nodes: Any = None
        self.most = 0
        self.others: Any = None
        self.out: Any = None
        self.due = self.progresses = False
        self.dues: Any = None
        self.partly: Any = None
        self.turns: Any = None
        self.timing: Any = None
        self.since = 0

    def answer(self, reply: bytes) -> None:
        """Take the reply."""
        if self.executor is not None:
            self.executor.answer(reply)

    def fail(self, error: bytes) -> None:
        """Take the error that stands for the reply."""
        if self.executor is not None:
            self.executor.fail(error)

    def take(self, by_line: dict[bytes, Any], data: bytes, kind: Any) -> bool:
        """Forward a get known by its line, if it is alone and its node is of type `kind`."""
        node: Any = None if self.alone else by_line.get(data)
        if type(node) is not kind:  # a node has no subclasses
            return False
        if self.turns is not None:
            if self.turns.left < 2:  # it is traced
                return False
            self.turns.left -= 1
        if self.since:
            self.timing.end_thinking(self)
        self.alone = self.reads = True
        node.send(data, self)
        return True

    def take_set(self, known_nodes: dict[bytes, Any], data: bytes, most: int, kind: Any) -> bool:
        """Return False: sets are recognized elsewhere."""
        return False


Lone: Final[Any] = LoneInPython if NATIVE is None else NATIVE.Lone
"""The class to use."""
HAND_OUT: Final[Any] = None if NATIVE is None else NATIVE.hand_out
"""Hands out the replies at the beginning of a node's input, if they are of the usual kinds.

Its arguments are the node, the input, the receivers, the number of requests answered before, the
number sent, the number of the request up to which the time is measured (0 for none), and the type
of receivers that take several replies. It returns how many bytes it took. From the first reply that
does not match its request, all replies are taken but not handed out, and the node's method
`_unexpected` is called with that reply. None without the C module.
"""


def writer_of(transport: asyncio.Transport) -> Callable[[bytes], object]:
    """Return a function that writes to a transport until the connection is lost.

    It sends small data past the transport where the transport would send it at once. Once the
    connection is lost, use the transport: the descriptor may belong to another socket.
    """
    if NATIVE is not None:
        number = descriptor(transport)
        if number is not None and number >= 0:
            writer: Callable[[bytes], object] = NATIVE.Writer(transport, number)
            return writer
    return transport.write
