"""What was measured, as it is saved: ``results.json``.

Times are in seconds where a name says nothing else; latencies in microseconds. The fields are
documented, and may only be added to, in one version of the format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "FORMAT",
    "VERSION",
    "Interval",
    "Knee",
    "Latency",
    "Point",
    "Repetition",
    "Results",
    "ServerUse",
    "Slice",
    "TargetInfo",
]

FORMAT = "memlite-bench"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over repetitions and its 95% confidence interval (Student's t).

    Attributes:
        mean: of the repetitions.
        low: the interval's lower end; None with one repetition, which says nothing about it.
        high: its upper end.
    """

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """A distribution of latencies, in microseconds.

    Attributes:
        count: how many were recorded.
        mean: their mean.
        least: the shortest.
        p50: half of them are at most this.
        p90: 90% of them are.
        p99: 99% of them are.
        p999: 99.9% of them are.
        most: the longest.
        histogram: all of them, as HdrHistogram's base64 text (V2, compressed), 3 significant
            digits.
    """

    count: int = 0
    mean: float = 0.0
    least: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    most: float = 0.0
    histogram: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """A second of a repetition.

    Attributes:
        second: its number, from 0; the last one may be shorter.
        operations: finished in it.
        errors: seen in it.
        p50: of the response times of those that finished in it, in microseconds; None without any.
        p99: likewise.
    """

    second: int
    operations: int
    errors: int = 0
    p50: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class ServerUse:
    """What a local server took in a repetition.

    Attributes:
        cpu_seconds: of processor time, user and system.
        cpu_share: that by the repetition's length: 1.0 is one core kept busy.
        memory_bytes: resident at the end.
    """

    cpu_seconds: float
    cpu_share: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Repetition:
    """One measurement.

    Attributes:
        number: from 1.
        started: unix time.
        seconds: how long it took; of a ``concurrent`` workload the total execution time, from the
            first client's start to the last one's end.
        operations: finished without error, each key of a multi-get counted.
        hits: of the keys asked for, those found.
        misses: the others.
        errors: errors and timeouts by kind, such as ``SERVER_ERROR out of memory storing object``,
            ``timeout``, ``connection refused``, ``connection reset``, ``wrong value``.
        bytes_sent: by clients.
        bytes_received: by clients.
        response: response times by operation, ``all`` for all of them: in open loop from the time a
            request was to be sent, else from when it was.
        service: in open loop, times from when a request was sent; empty in closed loop.
        series: second by second.
        server: what a local server took; None for others.
        generator_share: processor time of the busiest worker by the repetition's length.
        generator_cpu: microseconds of processor time the generator took for an operation.
        lateness: in open loop, the 99th percentile of how late requests were sent though their
            connection was free, in microseconds.
    """

    number: int
    started: float
    seconds: float
    operations: int
    hits: int = 0
    misses: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    bytes_sent: int = 0
    bytes_received: int = 0
    response: Mapping[str, Latency] = field(default_factory=dict)
    service: Mapping[str, Latency] = field(default_factory=dict)
    series: Sequence[Slice] = ()
    server: ServerUse | None = None
    generator_share: float = 0.0
    generator_cpu: float = 0.0
    lateness: float = 0.0

    @property
    def throughput(self) -> float:
        """Operations a second."""
        return self.operations / self.seconds if self.seconds else 0.0

    @property
    def failed(self) -> int:
        """How many errors there were."""
        return sum(self.errors.values())


@dataclass(frozen=True, slots=True)
class Point:
    """One target under one load: what its repetitions, and all of them together, came to.

    Attributes:
        target: its name.
        clients: connections at once.
        rate: operations a second that were to be sent, 0 in closed loop.
        value_size: bytes of a value, the mean where they differ.
        repetitions: each measurement.
        throughput: operations a second.
        seconds: how long a repetition took.
        p50: response time of all operations, in microseconds.
        p99: likewise.
        response: of all repetitions merged, by operation, ``all`` for all of them.
        service: likewise; empty in closed loop.
        generator_limited: whether the generator, not the server, was the limit.
    """

    target: str
    clients: int
    rate: float
    value_size: float
    repetitions: Sequence[Repetition]
    throughput: Interval
    seconds: Interval
    p50: Interval
    p99: Interval
    response: Mapping[str, Latency]
    service: Mapping[str, Latency] = field(default_factory=dict)
    generator_limited: bool = False

    @property
    def errors(self) -> dict[str, int]:
        """Errors by kind, of all repetitions."""
        total: dict[str, int] = {}
        for repetition in self.repetitions:
            for kind, count in repetition.errors.items():
                total[kind] = total.get(kind, 0) + count
        return total


@dataclass(frozen=True, slots=True)
class Knee:
    """Where a target is saturated.

    Attributes:
        target: its name.
        clients: at the knee.
        rate: likewise, 0 in closed loop.
        throughput: there, operations a second.
        p99: there, in microseconds.
        reason: why no more: ``throughput`` stopped growing; ``slo`` was passed; ``start``, it was
            passed from the first on; or ``limit``: it was not found with as many as were allowed.
    """

    target: str
    clients: int
    rate: float
    throughput: float
    p99: float
    reason: str


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What was measured.

    Attributes:
        name: for people, unique among the targets.
        kind: ``memory``, ``file``, ``gcs`` for servers started for it, ``server`` for others.
        address: where it listened.
        server: its name and version, such as ``memlite 0.1.0`` or ``memcached 1.6.18``.
        details: what else matters: durability, latency profile of the emulator, ….
    """

    name: str
    kind: str
    address: str
    server: str = ""
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Results:
    """All of a run.

    Attributes:
        format: `FORMAT`.
        version: `VERSION`.
        title: for the report's head.
        started: unix time.
        seconds: how long it all took.
        partial: whether it was interrupted.
        command: the command line.
        seed: of all that was random.
        client: ``text``, the built-in one, or ``pymemcache``.
        workers: processes that ran clients.
        machine: what it ran on: ``cpu``, ``cores``, ``memory_bytes``, ``system``, ``python``,
            ``hostname`` ….
        versions: of memlite and of what matters beside it.
        workload: as in a workload file.
        targets: what was measured.
        points: target by target, in the order of load.
        bursts: likewise, of new clients that all come at once, each with a set and a get of its own
            key: measured beside a ``steady`` workload when targets are compared.
        knees: where they were looked for.
    """

    title: str
    started: float
    seconds: float
    partial: bool
    command: Sequence[str]
    seed: int
    client: str
    workers: int
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    workload: Mapping[str, Any]
    targets: Sequence[TargetInfo]
    points: Sequence[Point]
    bursts: Sequence[Point] = ()
    knees: Sequence[Knee] = ()
    format: str = FORMAT
    version: int = VERSION
