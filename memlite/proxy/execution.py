"""The choice of a connection's executor, by the protocol it speaks."""

import importlib
from typing import TYPE_CHECKING, cast

from memlite.memory import Part
from memlite.protocol import Limits
from memlite.proxy.admin import ProxyAdmin
from memlite.proxy.cluster import Cluster
from memlite.proxy.executor import ProxyExecutor
from memlite.proxy.ordering import ForwardingClient
from memlite.proxy.recognizer import Recognizer
from memlite.server.execution.dialects import BINARY, Dialect
from memlite.server.execution.execution import ExecutingClient

if TYPE_CHECKING:
    from memlite.proxy.queue import RequestQueue
    from memlite.proxy.tally import Counts

__all__ = ["ForwardingExecution"]


class ForwardingExecution:
    """Makes executors that forward; see `memlite.server.execution.execution.Execution`.

    Args:
        cluster: the nodes.
        admin: carries out commands that are not about keys.
        limits: the limits on what clients may send.
        queue: the queue that requests pass through; None if they go straight to the nodes.
        counts: where commands are counted; None if they are not.
    """

    fast_gets = None
    waits = True
    longest_immediate = 0  # connections use `take`

    def __init__(
        self,
        cluster: Cluster,
        admin: ProxyAdmin,
        limits: Limits,
        queue: "RequestQueue | None" = None,
        counts: "Counts | None" = None,
    ) -> None:
        self._recognizer = Recognizer(cluster, limits)
        self._cluster = cluster
        self._admin = admin
        self._queue = queue
        self._counts = counts
        if counts is not None:
            # Import it now: the process may be about to lose read access to Python's files.
            importlib.import_module("memlite.proxy.counting_executors")

    def executor(self, dialect: Dialect, client: ExecutingClient, out: list[Part]) -> ProxyExecutor:
        """Return an executor for a client."""
        forwarding = cast("ForwardingClient", client)
        if self._counts is not None:
            return self._counted(self._counts, dialect, forwarding, out)
        if self._queue is not None:
            from memlite.proxy.queued_executors import QueuedBinaryExecutor, QueuedTextExecutor

            kind = QueuedBinaryExecutor if dialect is BINARY else QueuedTextExecutor
            return kind(self._cluster, self._admin, forwarding, out, self._recognizer, self._queue)
        if dialect is BINARY:
            from memlite.proxy.binary import BinaryProxyExecutor  # few clients need it

            return BinaryProxyExecutor(self._cluster, self._admin, forwarding, out)
        return ProxyExecutor(self._cluster, self._admin, forwarding, out, self._recognizer)

    def _counted(
        self, counts: "Counts", dialect: Dialect, client: ForwardingClient, out: list[Part]
    ) -> ProxyExecutor:
        """Return an executor that counts commands as well."""
        from memlite.proxy import counting_executors as counted

        binary, others = dialect is BINARY, (self._cluster, self._admin, client, out)
        if self._queue is not None:
            kind = (
                counted.CountedQueuedBinaryExecutor if binary else counted.CountedQueuedTextExecutor
            )
            return kind(counts, *others, self._recognizer, self._queue)
        if binary:
            return counted.CountedBinaryExecutor(counts, *others)
        return counted.CountedTextExecutor(counts, *others, self._recognizer)
