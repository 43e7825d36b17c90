"""Selection of one request in N for tracing; in C if the module was built.

In C, most traced requests take the same path as all others, and have no `Ticket`.
"""

from typing import Any, Final, Protocol

from memlite.proxy.framing import NATIVE

__all__ = ["Traced", "Turns", "TurnsInPython"]


class TurnsInPython:
    """Decides which request is the next to be traced.

    Args:
        every: one request in this many is traced, beginning with the first.

    Attributes:
        left: 1 if the next request is traced, 2 if the one after it is, and so on.
        every: as above.
        done: a list that receives finished requests that were traced in C and have no line, each
            as `Traced`; None if every traced request has a `Ticket`, as is the case without the C
            module.
        cluster: knows the version of the topology; None unless requests are traced in C.
        offset: nanoseconds from `time.monotonic_ns` to the time since 1970, for lines written in C;
            -1 if requests are to have none.
    """

    __slots__ = ("cluster", "done", "every", "left", "offset")

    def __init__(self, every: int) -> None:
        self.left = 1
        self.every = every
        self.done: Any = None
        self.cluster: Any = None
        self.offset = -1

    def passes(self) -> bool:
        """Count a request, and return whether it is traced."""
        if self.left > 1:
            self.left -= 1
            return False
        self.left = self.every
        return True

    def is_near(self) -> bool:
        """Return whether the next request, or the one after it, is traced."""
        return self.left <= 2

    def take_lines(self) -> tuple[bytes, int]:
        """Return the lines written in C since the last call, and their number.

        A request has a line unless a field must be quoted; keys are counted, not named.
        """
        return b"", 0


Turns: Final[Any] = TurnsInPython if NATIVE is None else NATIVE.Turns
"""The class to use."""


class Traced(Protocol):
    """A request that was traced in C; times are like those of `Ticket`.

    Attributes:
        client: the connection's number.
        epoch: the version of the topology.
        node: the node's name, or the names of several.
        request: the request's line, without its end.
        reply: the beginning of the reply.
        size: the size of the reply, in bytes.
        keys: the number of keys; more than one only if keys are not named in the trace.
        arrival: when the client's input was taken, with others of the same read.
        sent: when it was handed to the node's connection.
        received: when the node had replied.
        replied_at: when the reply was given to the client's connection.
    """

    @property
    def client(self) -> int: ...  # noqa: D102 - see the class
    @property
    def epoch(self) -> int: ...  # noqa: D102
    @property
    def node(self) -> str: ...  # noqa: D102
    @property
    def request(self) -> bytes: ...  # noqa: D102
    @property
    def reply(self) -> bytes: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102
    @property
    def keys(self) -> int: ...  # noqa: D102
    @property
    def arrival(self) -> int: ...  # noqa: D102
    @property
    def sent(self) -> int: ...  # noqa: D102
    @property
    def received(self) -> int: ...  # noqa: D102
    @property
    def replied_at(self) -> int: ...  # noqa: D102
