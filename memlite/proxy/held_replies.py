"""Looks at replies that wait for an earlier one of the same client."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from memlite.proxy.cluster import Cluster
from memlite.proxy.node import Node
from memlite.proxy.unread_replies import UnreadReplies
from memlite.server.scheduler import Scheduler

__all__ = ["HeldReplies"]

_INTERVAL: Final = 0.1
"""Seconds between two looks: what comes in between may exceed the limit."""


class HeldReplies:
    """Has what is held for clients counted while something keeps replies from being sent.

    A client's replies are sent in the order of its requests. If one node is slow, others may have
    answered all that came after a request for it. Nothing is looked at while no node is slow: a
    reply then waits for as long as another takes.

    Args:
        cluster: the nodes.
        unread: counts, and disconnects clients.
        clients: the connections.
        scheduler: calls.
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
        """Begin."""
        self._timer = self._scheduler.call_later(_INTERVAL, self._next)

    def stop(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def _next(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        """Count what is held, if a node has not answered what it was sent before the last look."""
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
