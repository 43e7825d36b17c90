"""Client connections to a member, served only while its lease is valid."""

from typing import Final

from memlite.cluster.membership.lease import Lease
from memlite.server.connections.connection import Connection, ConnectionServices

__all__ = ["MemberConnection"]

_NOT_A_MEMBER: Final = b"SERVER_ERROR this node is not in its cluster at the moment\r\n"


class MemberConnection(Connection):
    """A connection that is closed rather than served without a valid lease.

    The lease is checked for each read, because a process that was stopped and resumed does not
    notice the time that has passed.

    Args:
        lease: the node's lease.
        services: see `Connection`.
    """

    __slots__ = ("_lease",)

    def __init__(self, lease: Lease, services: ConnectionServices) -> None:
        self._lease = lease
        super().__init__(services)

    def data_received(self, data: bytes) -> None:
        """Serve the input."""
        if self._lease.valid:
            super().data_received(data)
        else:
            self._refuse()

    def _continue(self) -> None:
        """Serve buffered input."""
        if self._lease.valid:
            super()._continue()
        else:
            self._refuse()

    def _refuse(self) -> None:
        self.close_reason = "not_a_member"
        if not self._transport.is_closing():
            self._transport.write(_NOT_A_MEMBER)
            self._transport.close()
