"""The messages between the parent process and its workers."""

from dataclasses import dataclass

from memlite.client.login import TextLogin
from memlite.client.tls import TlsSettings
from memlite.cluster.topology import Topology
from memlite.loadtest.dialects import Dialect
from memlite.loadtest.workload import Workload

__all__ = ["Failed", "MeasurementEnded", "MeasurementStarted", "ProgressUpdate", "Ready", "Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """A task for one worker.

    Attributes:
        address: the server's address.
        workload: the workload of the clients.
        connections: this worker's number of connections.
        worker: the worker's number.
        workers: the number of workers that have connections.
        first_client: for a ``concurrent`` workload and pymemcache, the number of this worker's
            first client.
        seed: the seed of all randomness.
        client: ``text`` or ``pymemcache``.
        verify: whether to check values.
        timeout: the longest wait for a reply, in seconds.
        preload: whether to store the keys instead of measuring.
        login: the clients' credentials; None for no login.
        tls: TLS settings; None for plain TCP.
        dialect: the protocol that clients speak.
        topology: the nodes, for clients that know them; None for clients of one server.
        discovers_nodes: whether clients ask the server at `address` for the nodes when they
            connect.
        extra_addresses: further addresses; connections are spread over all addresses.
    """

    address: tuple[str, int] | str
    workload: Workload
    connections: int
    worker: int
    workers: int
    first_client: int
    seed: int
    client: str = "text"
    verify: bool = False
    timeout: float = 5.0
    preload: bool = False
    login: TextLogin | None = None
    tls: TlsSettings | None = None
    dialect: Dialect = Dialect.MEMCACHED
    topology: Topology | None = None
    discovers_nodes: bool = False
    extra_addresses: tuple[tuple[str, int] | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is connected and waits for the ``go`` command."""


@dataclass(frozen=True, slots=True)
class MeasurementStarted:
    """The worker has finished its warm-up and started measuring."""


@dataclass(frozen=True, slots=True)
class MeasurementEnded:
    """The worker has stopped measuring, but not yet summed up its recording."""


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """The progress of a worker.

    Attributes:
        operations: operations so far.
        errors: errors so far.
        p99: recent 99th percentile of response times, in microseconds.
    """

    operations: int
    errors: int
    p99: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker could not run its task.

    Attributes:
        reason: why, in one line.
        full: whether the server reported too many connections.
    """

    reason: str
    full: bool = False
