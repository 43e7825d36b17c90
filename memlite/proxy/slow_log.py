"""The slow log of a proxy: slow requests, timed from arrival to the last node's reply."""

from typing import Final

from memlite.proxy.queue import Ticket
from memlite.proxy.trace_rows import command_of
from memlite.telemetry.slow import SlowLog

__all__ = ["SlowRequests"]


class SlowRequests:
    """Passes slow requests to the slow log.

    Args:
        log: the slow log.
    """

    def __init__(self, log: SlowLog) -> None:
        self._log: Final = log

    def begin(self, ticket: Ticket) -> None:
        """Do nothing with a request that is about to be sent."""

    def record(self, ticket: Ticket) -> None:
        """Take a finished request."""
        elapsed = (ticket.received or ticket.replied_at) - ticket.arrival
        if elapsed >= self._log.threshold:
            command, keys = command_of(ticket)
            self._log.record(command, keys, elapsed, ticket.client.peer)
