"""What a connection can be besides one that answers commands."""

from typing import Protocol

__all__ = ["Stream"]


class Stream(Protocol):
    """Has a connection to itself from `Connection.attach` until `Connection.detach`.

    Attributes:
        endless: whether the connection is nothing else any more: what the peer still sends is
            passed over, and when it sends an end that is the end of both.
    """

    endless: bool

    def resume(self) -> None:
        """Go on sending, as the peer takes it again; called more often than that, too."""

    def lost(self) -> None:
        """Stop: the connection is gone."""
