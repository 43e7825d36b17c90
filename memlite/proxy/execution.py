"""The choice of a connection's executor, by the protocol it speaks."""

from typing import cast

from memlite.memory import Part
from memlite.protocol.limits import LONGEST_GET
from memlite.proxy.admin import ProxyAdmin
from memlite.proxy.cluster import Cluster
from memlite.proxy.executor import ForwardingClient, ProxyExecutor
from memlite.server.execution.dialects import BINARY, Dialect
from memlite.server.execution.execution import ExecutingClient

__all__ = ["ForwardingExecution"]


class ForwardingExecution:
    """Makes executors that forward; see `memlite.server.execution.execution.Execution`.

    Args:
        cluster: the nodes.
        admin: carries out commands that are not about keys.
    """

    fast_gets = None
    waits = True
    longest_ready = LONGEST_GET

    def __init__(self, cluster: Cluster, admin: ProxyAdmin) -> None:
        self._cluster = cluster
        self._admin = admin

    def executor(self, dialect: Dialect, client: ExecutingClient, out: list[Part]) -> ProxyExecutor:
        """Return an executor for a client."""
        forwarding = cast("ForwardingClient", client)
        if dialect is BINARY:
            from memlite.proxy.binary import BinaryProxyExecutor  # few clients need it

            return BinaryProxyExecutor(self._cluster, self._admin, forwarding, out)
        return ProxyExecutor(self._cluster, self._admin, forwarding, out)
