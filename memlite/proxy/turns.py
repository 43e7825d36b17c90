"""One request in so many, which is traced; in C if that was compiled.

In C, most of these requests do not leave the way of all others, and have no `Ticket`.
"""

from typing import Any, Final, Protocol

from memlite.proxy.framing import NATIVE

__all__ = ["Traced", "Turns", "TurnsInPython"]


class TurnsInPython:
    """Tells which request is the next to be traced.

    Args:
        every: one in so many is, the first one included.

    Attributes:
        left: 1 if it is the next request, 2 if it is the one after that.
        every: as above.
        done: a list that gets those which were traced in C, each as `Traced`, when they are over;
            None if all of them have a `Ticket`, as they have without the module.
        cluster: has the version of the topology; None unless they are traced in C.
    """

    __slots__ = ("cluster", "done", "every", "left")

    def __init__(self, every: int) -> None:
        self.left = 1
        self.every = every
        self.done: Any = None
        self.cluster: Any = None


Turns: Final[Any] = TurnsInPython if NATIVE is None else NATIVE.Turns
"""The class to use."""


class Traced(Protocol):
    """A request for one node that was traced in C; times are as those of `Ticket`.

    Attributes:
        client: number of the connection.
        epoch: the version of the topology.
        node: the node's name.
        request: the request's line, without its end.
        reply: what the reply begins with.
        size: of the reply, in bytes.
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
    def arrival(self) -> int: ...  # noqa: D102
    @property
    def sent(self) -> int: ...  # noqa: D102
    @property
    def received(self) -> int: ...  # noqa: D102
    @property
    def replied_at(self) -> int: ...  # noqa: D102
    def line(self, offset: int, /) -> bytes | None:
        """Return its line of the trace, with the number of keys; None if it needs quotes.

        Args:
            offset: nanoseconds from `time.monotonic_ns` to the time since 1970.
        """
