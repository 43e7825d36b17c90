"""The results of a run, as saved in ``results.json``.

Times are in seconds unless a name says otherwise; latencies are in microseconds. Within a version
of the format, documented fields stay and new ones may be added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "FORMAT",
    "VERSION",
    "Checks",
    "ClusterInfo",
    "Estimate",
    "Interval",
    "Intervals",
    "Knee",
    "Latency",
    "LawCheck",
    "LittleCheck",
    "MachineUse",
    "Placed",
    "Point",
    "ProxyTimes",
    "Repetition",
    "RepetitionCheck",
    "Results",
    "SaturationFound",
    "SeriesCheck",
    "ServerUse",
    "Slice",
    "StallFound",
    "TargetInfo",
    "UslFit",
]

FORMAT = "memlite-bench"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over repetitions and its 95% confidence interval (Student's t).

    Attributes:
        mean: mean over the repetitions.
        low: lower bound of the interval; None if there was only one repetition.
        high: upper bound of the interval; likewise.
    """

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """A distribution of latencies, in microseconds.

    Attributes:
        count: number of recorded latencies.
        mean: their mean.
        least: the shortest.
        p50: the median.
        p90: the 90th percentile.
        p99: the 99th percentile.
        p999: the 99.9th percentile.
        most: the longest.
        histogram: the whole distribution as an HdrHistogram in base64 (V2, compressed, 3
            significant digits).
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
    """One second of a repetition.

    Attributes:
        second: its number, from 0; the last one may be shorter than a second.
        operations: operations completed in it.
        errors: errors in it.
        p50: median response time of those operations, in microseconds; None if there were none.
        p99: 99th percentile of their response times; likewise.
    """

    second: int
    operations: int
    errors: int = 0
    p50: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Intervals:
    """A repetition in short intervals of equal length, without an incomplete last one.

    Attributes:
        seconds: the length of an interval.
        operations: operations completed in each.
        p50: median response time of those operations, in microseconds; null if there were none.
        p99: 99th percentile of their response times; likewise.
    """

    seconds: float
    operations: Sequence[int]
    p50: Sequence[float | None]
    p99: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class ServerUse:
    """The resources a local server used in a repetition.

    Attributes:
        cpu_seconds: processor time, user and system.
        cpu_share: CPU utilisation: processor time divided by the repetition's length, 1.0 being
            one fully used core.
        memory_bytes: resident memory at the end.
        thread_share: CPU utilisation of its busiest thread; 0.0 if unknown.
    """

    cpu_seconds: float
    cpu_share: float
    memory_bytes: int
    thread_share: float = 0.0


@dataclass(frozen=True, slots=True)
class MachineUse:
    """How busy the load generator's machine was with anything else, in shares of all its cores.

    If servers ran on other machines, it is that of all these machines that was busiest with it.

    Attributes:
        other: processor time of programs that are not part of the measurement.
        steal: time for which a hypervisor ran something else.
    """

    other: float
    steal: float


@dataclass(frozen=True, slots=True)
class ProxyTimes:
    """Where requests spent their time, as all proxies of a cluster measured it.

    Times are means in microseconds. Those of the queue are None unless the proxies limit how many
    requests are at the nodes (``--in-flight``).

    Attributes:
        queue_length: requests that waited, as each request found it on its arrival.
        queue: time in the queue.
        service: time from a worker's taking a request to the last node's reply.
        think: time from a client's last reply to its next request.
        nodes: by node, the time from a write to the reply to the last request in it.
    """

    queue_length: float | None
    queue: float | None
    service: float | None
    think: float | None
    nodes: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Repetition:
    """One measurement.

    Attributes:
        number: its number, from 1.
        started: start time, unix time.
        seconds: its length; for a ``concurrent`` workload the total execution time, from the first
            client's start to the last client's end.
        operations: operations completed without error; each key of a multiget counts.
        hits: requested keys that were found.
        misses: requested keys that were not found.
        errors: errors and timeouts by kind, such as ``SERVER_ERROR out of memory storing object``,
            ``timeout``, ``connection refused``, ``connection reset``, ``wrong value``.
        bytes_sent: bytes sent by clients.
        bytes_received: bytes received by clients.
        response: response times by operation, and ``all`` for all operations. In an open loop they
            are measured from when a request was due, in a closed loop from when it was sent.
        service: for an open loop, service times: measured from when a request was sent. Empty for a
            closed loop.
        series: the time series, second by second.
        intervals: the time series in finer steps; None if the measurement was shorter than one of
            them, and in files of earlier versions.
        think_time: in a closed loop, the mean time from a reply until the client sent its next
            request, in microseconds: the generator's own, and the pause of the workload. None if it
            was not measured.
        server: resources used by a local server; None for a remote one.
        generator_share: CPU utilisation of the busiest worker, 1.0 being one fully used core; in an
            open loop without the time in which it only waited for the next arrival.
        generator_cpu: processor time of the generator per operation, in microseconds; likewise.
        lateness: for an open loop, the 99th percentile of how late requests were sent although
            their connection was free, in microseconds.
        in_system: for an open loop, how many requests were in the system on average over time: due,
            and not yet answered. They are counted as they become due and as they are answered; no
            response time is used. None for a closed loop.
        cut_off: for an open loop, how many of them there were at the beginning or the end.
        generator_idle: for an open loop, the share of the time in which the busiest worker only
            waited for the next arrival. None for a closed loop.
        machine: how busy the machine was with anything else; None if that is unknown, as in
            repetitions of less than half a second.
        processes: of a cluster, the resources that each process used: ``proxy``, or ``proxy-1``,
            ``proxy-2``, … if there are several, and ``node-1``, …. Empty for a single server.
        proxies: of a cluster whose proxies requests pass, what these measured; else None.
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
    intervals: Intervals | None = None
    think_time: float | None = None
    server: ServerUse | None = None
    generator_share: float = 0.0
    generator_cpu: float = 0.0
    lateness: float = 0.0
    in_system: float | None = None
    cut_off: int = 0
    generator_idle: float | None = None
    machine: MachineUse | None = None
    processes: Mapping[str, ServerUse] = field(default_factory=dict)
    proxies: ProxyTimes | None = None

    @property
    def throughput(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds if self.seconds else 0.0

    @property
    def failed(self) -> int:
        """The number of errors of all kinds."""
        return sum(self.errors.values())


@dataclass(frozen=True, slots=True)
class LawCheck:
    """A repetition in a closed loop against the interactive response time law, R = N/X − Z.

    Attributes:
        clients: N: how many requests all clients may have in flight.
        throughput: X: requests per second.
        response_time: R: the mean response time, in microseconds.
        think_time: Z: the mean time from a reply to the client's next request, in microseconds.
        predicted: N/X − Z, in microseconds.
        difference: that divided by R, less 1.
        in_system: X·(R + Z), which is N by Little's law.
        tolerance: the largest difference, in either direction, for which the law holds: 2%, or if
            that is more, what the ends of the measurement can explain, which cut off at most the
            longest response of each client.
        holds: whether it holds; None if that cannot be tested, because the tolerance is above 10%.
        cause: why it need not hold although no request was lost: requests failed, which count
            neither in X nor in R; or clients did a number of operations each, and did not end at
            the same time. Empty if neither.
    """

    clients: int
    throughput: float
    response_time: float
    think_time: float
    predicted: float
    difference: float
    in_system: float
    tolerance: float
    holds: bool | None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class LittleCheck:
    """A repetition in an open loop against Little's law, N = X·R.

    Attributes:
        in_system: N: the mean number of requests in the system over time, as counted.
        throughput: X: requests per second.
        response_time: R: the mean response time, in microseconds.
        predicted: X·R.
        difference: that divided by N, less 1.
        tolerance: the largest difference, in either direction, for which the law holds: 2%, or if
            that is more, what the ends of the measurement can explain, which cut off at most the
            longest response of each request that was in the system then.
        holds: whether it holds; None if that cannot be tested, because the tolerance is above 10%.
        cause: why it need not hold although no request was lost: requests failed, which count in N,
            and neither in X nor in R. Empty if none did.
    """

    in_system: float
    throughput: float
    response_time: float
    predicted: float
    difference: float
    tolerance: float
    holds: bool | None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class StallFound:
    """Successive intervals with less than half of the median throughput.

    Attributes:
        start: when it began, in seconds from the start of the repetition.
        seconds: its length.
        lost: operations that were not completed in it, compared with the median.
    """

    start: float
    seconds: float
    lost: float


@dataclass(frozen=True, slots=True)
class SeriesCheck:
    """What the throughput in the intervals of a repetition shows.

    Attributes:
        warm_up: the length of the warm-up that the measurement contains, by MSER-5, in seconds.
        cool_down: that of the cool-down, in seconds.
        known: whether the repetition has enough intervals to tell.
        settles: whether it has a steady state: what is left does not change, and is not shorter
            than 20 intervals, nor without any operation in one half. If not, both are 0, and the
            following fields are those of all intervals.
        bias: by how much they change the mean throughput, as a share of that of the steady state.
        trend: by how much throughput rises from the beginning to the end of the steady state, as a
            share of its mean.
        trend_low: the lower bound of the 95% confidence interval of that.
        trend_high: the upper bound.
        steady: whether there is no trend: the interval contains 0, or the trend is less than 5%.
        throughput: the mean of the steady state, in operations per second.
        throughput_low: the lower bound of its 95% confidence interval, by batch means.
        throughput_high: the upper bound.
        independent: whether the batches pass for independent; if not, the interval is too narrow.
        outliers: the numbers of intervals that are outliers, from 0. They count like the others.
        stalls: those that are stalls.
    """

    warm_up: float
    cool_down: float
    known: bool
    settles: bool
    bias: float
    trend: float
    trend_low: float
    trend_high: float
    steady: bool
    throughput: float
    throughput_low: float
    throughput_high: float
    independent: bool
    outliers: Sequence[int] = ()
    stalls: Sequence[StallFound] = ()


@dataclass(frozen=True, slots=True)
class RepetitionCheck:
    """The checks of a repetition.

    Attributes:
        number: the repetition's number.
        law: the interactive response time law; None in an open loop, and if the think time is not
            known.
        series: the time series; None if it has less than 20 intervals.
        little: Little's law; None in a closed loop, and in files of earlier versions.
    """

    number: int
    law: LawCheck | None = None
    series: SeriesCheck | None = None
    little: LittleCheck | None = None


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of a point.

    Attributes:
        repetitions: those of each repetition.
        outliers: the numbers of the repetitions whose throughput is an outlier, of five
            repetitions or more: a modified z-score so high that chance explains at most 5% of such
            sets. They count like the others.
    """

    repetitions: Sequence[RepetitionCheck]
    outliers: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """One target at one load level: its repetitions and their summary.

    Attributes:
        target: the target's name.
        clients: number of concurrent connections.
        rate: for an open loop, the rate at which operations were due, per second; 0 for a closed
            loop.
        value_size: size of a value in bytes; the mean if sizes vary.
        repetitions: the measurements.
        throughput: operations per second.
        seconds: length of a repetition.
        p50: median response time of all operations, in microseconds.
        p99: 99th percentile of the response times of all operations, in microseconds.
        response: response times of all repetitions merged, by operation, and ``all`` for all
            operations.
        service: service times, likewise; empty for a closed loop.
        generator_limited: whether the generator, rather than the server, was the bottleneck.
        checks: what checks of the repetitions found; None in files of earlier versions, and for
            bursts.
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
    checks: Checks | None = None

    @property
    def errors(self) -> dict[str, int]:
        """Errors by kind, summed over the repetitions."""
        total: dict[str, int] = {}
        for repetition in self.repetitions:
            for kind, count in repetition.errors.items():
                total[kind] = total.get(kind, 0) + count
        return total


@dataclass(frozen=True, slots=True)
class Knee:
    """The load at which a target saturates.

    Attributes:
        target: the target's name.
        clients: number of clients at the knee.
        rate: for an open loop, the rate at the knee, in operations per second; 0 for a closed loop.
        throughput: throughput at the knee, in operations per second.
        p99: 99th percentile of response times at the knee, in microseconds.
        reason: why the search ended: ``throughput``, it stopped growing; ``slo``, a higher load
            exceeds the SLO; ``start``, the first load already exceeded it; ``limit``, the highest
            allowed load was reached; ``connections``, the server does not accept more.
    """

    target: str
    clients: int
    rate: float
    throughput: float
    p99: float
    reason: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate and its 95% confidence interval.

    Attributes:
        value: the estimate; null if it is infinite.
        low: the lower bound of the interval.
        high: the upper bound; null if it is infinite.
    """

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class UslFit:
    """The Universal Scalability Law, fitted to the throughputs of a target.

    Attributes:
        contention: σ.
        coherency: κ.
        rate: γ, the throughput of one client, in operations per second.
        peak_clients: N*, the number of clients with the most throughput.
        peak_throughput: the throughput with as many, in operations per second.
        explained: the share of the variation of throughput that the fit explains (R²).
        warnings: what the data cannot support.
    """

    contention: Estimate
    coherency: Estimate
    rate: Estimate
    peak_clients: Estimate
    peak_throughput: Estimate
    explained: float
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SaturationFound:
    """Where a target saturates, in a closed loop with several numbers of clients.

    Attributes:
        target: the target's name.
        value_size: size of a value in bytes.
        under: the numbers of clients with which it is under-saturated.
        saturated: those with at least 95% of the highest throughput.
        over: those with less, above the best.
        uncertain: those of all these whose confidence interval allows for another range.
        knee: the fewest clients from which on it is saturated; null if it never is.
        knee_above: the most clients that are certainly too few for the knee; 0 if none are.
        knee_at_most: the fewest that are certainly enough; null if none are.
        asymptotic_knee: the number of clients at which the bounds for light and for heavy load
            meet.
        most_power: the number of clients with the most throughput divided by response time.
        usl: the Universal Scalability Law; null with less than four numbers of clients.
        warnings: what the data cannot support.
    """

    target: str
    value_size: float
    under: Sequence[int]
    saturated: Sequence[int]
    over: Sequence[int]
    uncertain: Sequence[int]
    knee: int | None
    knee_above: int
    knee_at_most: int | None
    asymptotic_knee: float
    most_power: int | None
    usl: UslFit | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """What a cluster consists of, that the load tester launched.

    Attributes:
        nodes: number of nodes.
        path: ``proxied``, requests pass a proxy; ``direct``, clients know the nodes; or
            ``asked``, they ask a proxy for them when they connect.
        proxies: number of proxies, over which clients are spread; 0 if none takes part.
        in_flight: most requests of each proxy at the nodes (``--in-flight``); 0 without a limit,
            and in files of earlier versions.
    """

    nodes: int
    path: str
    proxies: int = 1
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """The machine that a process ran on.

    Attributes:
        machine: as the user named it.
        cores: how many it has.
        cpu: its processor.
    """

    machine: str
    cores: int
    cpu: str = ""


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """A measured server, or cluster.

    Attributes:
        name: its display name, unique among the targets.
        kind: ``memory``, ``file``, ``gcs``, ``valkey`` or another scheme for servers launched by
            the load tester, ``cluster`` for its clusters, ``server`` for others.
        address: the address it listened on; of a cluster without a proxy, the first node's.
        server: the version it reports, such as ``1.6.18``.
        details: other relevant facts, such as durability or the emulator's latency profile.
        cluster: of a cluster, what it consists of.
        machines: the types of the machines it ran on, as the user named them, and how many there
            were of each. Empty if not named.
        placed: of a cluster on other machines than the load generator's, the machine of each
            process, by the names of `Repetition.processes`. Otherwise empty.
    """

    name: str
    kind: str
    address: str
    server: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    cluster: ClusterInfo | None = None
    machines: Mapping[str, int] = field(default_factory=dict)
    placed: Mapping[str, Placed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a whole run.

    Attributes:
        format: `FORMAT`.
        version: `VERSION`.
        title: the report's title.
        started: start time, unix time.
        seconds: duration of the whole run; of a resumed run, since it was resumed.
        partial: whether the run ended early.
        command: the command line.
        seed: the seed of all randomness.
        client: ``text``, the built-in client, or ``pymemcache``.
        workers: number of worker processes.
        machine: the machine of the load generator: ``cpu``, ``cores``, ``memory_bytes``,
            ``system``, ``python``, ``hostname`` and so on.
        versions: versions of memlite and of the packages it uses.
        workload: the workload, laid out as in a workload file.
        targets: the measured servers.
        points: the measurements, by target and load.
        bursts: measurements of bursts, in which new clients arrive all at once and each sets and
            gets its own key. Comparisons with a ``steady`` workload include them.
        knees: the results of searches for the knee.
        saturation: where each target saturates, for each size of values that was measured with two
            numbers of clients or more.
        failure: why the run ended early, if the user did not interrupt it.
        mixed: how the systems it was measured on differ, if it was interrupted and continued on
            another.
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
    saturation: Sequence[SaturationFound] = ()
    failure: str = ""
    mixed: str = ""
    format: str = FORMAT
    version: int = VERSION
