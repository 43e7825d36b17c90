"""Periodic count of replies that wait for an earlier one to the same client."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from memlite.proxy.cluster import Cluster
from memlite.proxy.node import Node
from memlite.proxy.unread_replies import UnreadReplies
from memlite.server.scheduler import Scheduler

__all__ = ["HeldReplies"]

_INTERVAL: Final = 0.1
"""Seconds between two checks; replies that arrive in between may exceed the limit."""


class HeldReplies:
    """Counts the bytes held for clients while something keeps replies from being sent.

    A client's replies are sent in the order of its requests. If one node is slow, others may have
    answered all requests that came after one for it. Nothing is checked while no node is slow: a
    reply then waits only for as long as another takes.

    Args:
        cluster: the nodes.
        unread: counts the bytes, and disconnects clients.
        clients: the connections.
        scheduler: schedules the checks.
    """

    def __init__(
        self,
        cluster: Cluster,
        unread: UnreadReplies,
        clients: Iterable[Any],
        scheduler: Scheduler,
    ) -> None:
        self._cluster = cluster
        self._unread = unread
        self._clients = clients
        self._scheduler = scheduler
        self._asked: dict[Node, int] = {}  # requests that each node had been sent
        self._counted: set[Any] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the checks."""
        self._timer = self._scheduler.call_later(_INTERVAL, self._next)

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def _next(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        """Count held replies, if a node has not answered all requests from before the last look."""
        nodes, asked = self._cluster.every_node, self._asked
        slow = any(node.answered < asked.get(node, 0) for node in nodes)
        self._asked = {node: node.requests for node in nodes}
        if not (slow or self._counted or self._cluster.makes_wait):
            return
        before = self._counted
        self._counted = {client for client in self._clients if client.waiting}
        for client in before | self._counted:
            if client.held:
                client.count_unread()
            else:
                self._unread.forget(client)
