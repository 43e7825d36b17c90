"""The narrow interfaces through which parts of the server see one another.

Protocols only. This module imports nothing else from the server, so every part of the server may
import it without a circular import.
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from memlite.engine.observer import Observer
    from memlite.engine.prefixes import PrefixStats
    from memlite.engine.sizes import SizeClasses
    from memlite.telemetry.snapshot import SocketState

__all__ = ["Client", "ConnectionInfo", "ObservableEngine", "Peer", "Stream"]


class Stream(Protocol):
    """Owns a connection from `Client.attach` until `Client.detach`.

    Attributes:
        endless: whether the connection will never serve commands again. Input is then discarded,
            and the connection is closed when the peer half-closes it.
    """

    endless: bool

    def resume(self) -> None:
        """Continue sending. Called when the peer reads again, and at other times too."""

    def lost(self) -> None:
        """Stop: the connection is closed."""


class ConnectionInfo(Protocol):
    """The properties of a connection that ``stats conns`` shows.

    Attributes:
        last_command: unix time at which the peer last sent something, in whole seconds.
    """

    last_command: int

    @property
    def number(self) -> int:
        """The socket's file descriptor, -1 once it is closed."""

    @property
    def peer(self) -> str:
        """The client's address, such as ``tcp:127.0.0.1:50000``."""

    @property
    def listener(self) -> str:
        """The address the client connected to, in the same form."""

    @property
    def state(self) -> "SocketState":
        """The activity of the connection."""


class Client(ConnectionInfo, Protocol):
    """The connection of an administrative command, as far as such commands may use it.

    Attributes:
        close_reason: why the connection is closed, in the words of ``watch connevents``.
    """

    close_reason: str

    @property
    def can_wait(self) -> bool:
        """Whether a reply may be sent later, by a stream; False over UDP."""

    @property
    def pipelined(self) -> bool:
        """Whether replies to earlier commands are still to be sent."""

    @property
    def endpoint(self) -> tuple[str, int, str]:
        """The client's address, port and transport, in the words of ``watch connevents``."""

    @property
    def writable(self) -> bool:
        """Whether the peer is reading its replies."""

    def attach(self, stream: Stream) -> None:
        """Hand the connection to a stream; commands wait until `detach`."""

    def detach(self) -> None:
        """Take the connection back from the stream, and serve the commands that waited."""

    def send(self, data: bytes) -> None:
        """Send part of a stream. Anything long should wait until the client is `writable`."""

    def close(self) -> None:
        """Close once all replies are sent."""

    def abort(self) -> None:
        """Close at once."""


class Peer(Client, Protocol):
    """A connection as seen by the register of connections."""

    @property
    def busy(self) -> bool:
        """Whether a command is half received, or replies are still to be sent."""

    @property
    def host(self) -> str:
        """The client's host without the port; the same for all clients of a UNIX socket."""

    def idle_since(self, second: int) -> bool:
        """Return whether there has been no activity since before unix second `second`."""

    def kick(self) -> bool:
        """Close for being idle; return whether it was still open."""

    def leave_fast_path(self) -> None:
        """Send the next read through the parser."""


class ObservableEngine(Protocol):
    """An engine whose commands can be observed; see `memlite.engine.Engine`."""

    @property
    def cas_enabled(self) -> bool:
        """Whether items have cas uniques."""

    @property
    def sizes(self) -> "SizeClasses":
        """The size classes items are counted in."""

    @property
    def prefixes(self) -> "PrefixStats | None":
        """The counts per key prefix, None while they are off."""

    @property
    def observer(self) -> "Observer | None":
        """The observer notified about items, None while there is none."""

    def observe(self, prefixes: "PrefixStats | None", observer: "Observer | None") -> None:
        """Count by prefix and notify an observer from now on; None turns either off."""
