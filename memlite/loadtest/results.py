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
        low: lower bound of the interval; null if there was only one repetition.
        high: upper bound of the interval; null if there was only one repetition.
    """

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """A distribution of latencies, in microseconds.

    Attributes:
        count: number of recorded latencies.
        mean: the mean.
        least: the shortest latency.
        p50: the median.
        p90: the 90th percentile.
        p99: the 99th percentile.
        p999: the 99.9th percentile.
        most: the longest latency.
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
        second: number of the second, from 0; the last one may be shorter.
        operations: operations completed in this second.
        errors: errors in this second.
        p50: median response time of these operations, in microseconds; null without operations.
        p99: 99th percentile of the response times, in microseconds; null without operations.
    """

    second: int
    operations: int
    errors: int = 0
    p50: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Intervals:
    """A repetition in short intervals of equal length. An incomplete last interval is left out.

    Attributes:
        seconds: length of an interval.
        operations: operations completed in each interval.
        p50: median response time in each interval, in microseconds; null without operations.
        p99: 99th percentile of the response times in each interval, in microseconds; null without
            operations.
    """

    seconds: float
    operations: Sequence[int]
    p50: Sequence[float | None]
    p99: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class ServerUse:
    """The resources that a server, or one of its processes, used in a repetition.

    Attributes:
        cpu_seconds: processor time, user and system.
        cpu_share: CPU utilisation, which is the processor time divided by the length of the
            repetition; 1.0 is one fully used core.
        memory_bytes: resident memory at the end.
        thread_share: CPU utilisation of the busiest thread; 0.0 if unknown.
    """

    cpu_seconds: float
    cpu_share: float
    memory_bytes: int
    thread_share: float = 0.0


@dataclass(frozen=True, slots=True)
class MachineUse:
    """Other load on the load generator's machine, as shares of the time of all its cores.

    If servers ran on other machines, the values are those of the machine with the most other load.

    Attributes:
        other: share used by programs that are not part of the measurement.
        steal: share taken by the hypervisor for other virtual machines (steal time).
    """

    other: float
    steal: float


@dataclass(frozen=True, slots=True)
class ProxyTimes:
    """Where requests spent their time, as measured by all proxies of a cluster. Times are means.

    Attributes:
        queue_length: mean number of waiting requests that a request finds on its arrival; null
            unless the proxies limit the requests in flight to the nodes (``--in-flight``).
        queue: time in the queue, in microseconds; null like ``queue_length``.
        service: time from when a worker takes a request until the last node replies, in
            microseconds; null like ``queue_length``.
        think: time from the reply to a client until its next request, in microseconds; null like
            ``queue_length``.
        nodes: for each node, the time from a write to the node until the reply to the last request
            in that write, in microseconds.
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
        number: number of the repetition, from 1.
        started: start time, unix time.
        seconds: length of the repetition; for a ``concurrent`` workload, the total execution time
            from the start of the first client to the end of the last.
        operations: operations completed without error; each key of a multi-get counts.
        hits: requested keys that were found.
        misses: requested keys that were not found.
        errors: errors and timeouts by kind, such as ``SERVER_ERROR out of memory storing object``,
            ``timeout``, ``connection refused``, ``connection reset``, ``wrong value``.
        bytes_sent: bytes sent by clients.
        bytes_received: bytes received by clients.
        response: response times by operation, and ``all`` for all operations. An open loop measures
            them from the time at which a request was due, a closed loop from the time at which it
            was sent.
        service: in an open loop, service times by operation, measured from the time at which a
            request was sent. Empty in a closed loop.
        series: time series, second by second.
        intervals: time series in shorter intervals; null if the measurement was shorter than one
            interval, and in files of earlier versions.
        think_time: in a closed loop, the mean time from a reply until the client sent its next
            request, in microseconds. It consists of the generator's own time and the workload's
            think time. Null if not measured.
        server: resources used by the server; null if they could not be read, as for a server on
            another machine that the load tester did not start.
        generator_share: CPU utilisation of the busiest worker; 1.0 is one fully used core. In an
            open loop, time spent only waiting for the next arrival does not count.
        generator_cpu: processor time of the generator per operation, in microseconds. In an open
            loop, time spent only waiting for the next arrival does not count.
        lateness: in an open loop, the 99th percentile of how late a request was sent although a
            connection was free, in microseconds.
        in_system: in an open loop, the mean number of requests in the system over time: those that
            are due but not yet answered. The load tester counts requests when they become due and
            when they are answered, independently of response times. Null in a closed loop.
        cut_off: in an open loop, the number of requests in the system at the beginning of the
            measurement, plus that at the end.
        generator_idle: in an open loop, the share of the time that the busiest worker spent only
            waiting for the next arrival. Null in a closed loop.
        machine: other load on the machine; null if unknown, as in repetitions of less than half a
            second.
        processes: for a cluster, the resources that each process used: ``proxy``, or ``proxy-1``,
            ``proxy-2``, … if there are several, and ``node-1``, …. Empty for a single server.
        proxies: for a cluster in which requests pass proxies, the times that the proxies measured;
            otherwise null.
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
    """Test of a repetition in a closed loop by the interactive response time law, R = N/X − Z.

    Attributes:
        clients: N, the number of requests that all clients may have in flight.
        throughput: X, in requests per second.
        response_time: R, the mean response time, in microseconds.
        think_time: Z, the mean time from a reply to the client's next request, in microseconds.
        predicted: N/X − Z, in microseconds.
        difference: the predicted value divided by R, minus 1.
        in_system: X·(R + Z), which equals N by Little's law.
        tolerance: the largest difference, in either direction, at which the law is said to hold.
            It is 2%, or, if larger, the difference that truncation at the ends of the measurement
            can explain; for each client this is at most the longest response.
        holds: whether the law holds; null if it cannot be tested because the tolerance is above
            10%.
        cause: why the law need not hold even if no request was lost: requests failed, and count
            neither in X nor in R, or clients finished at different times, after a given number of
            operations each. Empty if neither applies.
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
    """Test of a repetition in an open loop by Little's law, N = X·R.

    Attributes:
        in_system: N, the mean number of requests in the system over time, as counted.
        throughput: X, in requests per second.
        response_time: R, the mean response time, in microseconds.
        predicted: X·R, the predicted number of requests in the system.
        difference: the predicted value divided by N, minus 1.
        tolerance: the largest difference, in either direction, at which the law is said to hold.
            It is 2%, or, if larger, the difference that truncation at the ends of the measurement
            can explain; for each request in the system at an end this is at most the longest
            response.
        holds: whether the law holds; null if it cannot be tested because the tolerance is above
            10%.
        cause: why the law need not hold even if no request was lost: requests failed, and count
            in N but neither in X nor in R. Empty if no request failed.
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
    """A stall: successive intervals, each with less than half of the median throughput.

    Attributes:
        start: beginning of the stall, in seconds from the start of the repetition.
        seconds: length of the stall.
        lost: number of operations that the stall cost, compared with the median throughput.
    """

    start: float
    seconds: float
    lost: float


@dataclass(frozen=True, slots=True)
class SeriesCheck:
    """Checks of the throughput series, which consists of the intervals of a repetition.

    Attributes:
        warm_up: length of the warm-up that the measurement contains, by MSER-5, in seconds.
        cool_down: length of the cool-down, in seconds.
        known: whether the repetition has enough intervals to detect a warm-up and a cool-down.
        settles: whether the repetition has a steady state: MSER-5 finds one, at least 20 intervals
            are left, and both halves of them contain operations. If not, ``warm_up`` and
            ``cool_down`` are 0, and the following fields refer to all intervals.
        bias: effect of the warm-up and the cool-down on the mean throughput: the mean of all
            intervals divided by that of the steady state, minus 1.
        trend: increase in throughput from the beginning to the end of the steady state, as a share
            of its mean.
        trend_low: lower bound of the 95% confidence interval of the trend.
        trend_high: upper bound of the 95% confidence interval of the trend.
        steady: whether there is no trend: the confidence interval contains 0, or the trend is less
            than 5%.
        throughput: mean throughput of the steady state, in operations per second.
        throughput_low: lower bound of the 95% confidence interval of the mean, by batch means.
        throughput_high: upper bound of the 95% confidence interval of the mean.
        independent: whether the batches show no correlation; if they do, the confidence interval is
            too narrow.
        outliers: numbers of the intervals that are outliers, from 0. They are not excluded.
        stalls: the stalls found.
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
        number: number of the repetition.
        law: test by the interactive response time law; null in an open loop, and if the think time
            is not known.
        series: checks of the time series; null if it has fewer than 20 intervals.
        little: test by Little's law; null in a closed loop, and in files of earlier versions.
    """

    number: int
    law: LawCheck | None = None
    series: SeriesCheck | None = None
    little: LittleCheck | None = None


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of a point.

    Attributes:
        repetitions: checks of each repetition.
        outliers: numbers of the repetitions whose throughput is an outlier; empty with fewer than
            five repetitions. By chance alone, at most 5% of sets of repetitions have a modified
            z-score as high as that of an outlier. Outliers are not excluded.
    """

    repetitions: Sequence[RepetitionCheck]
    outliers: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """One target at one load level: its repetitions and their summary.

    Attributes:
        target: name of the target.
        clients: number of concurrent connections.
        rate: in an open loop, the rate at which operations were due, per second; 0 in a closed
            loop.
        value_size: size of a value in bytes; the mean if sizes vary.
        repetitions: the measurements.
        throughput: operations per second.
        seconds: length of a repetition.
        p50: median response time of all operations, in microseconds.
        p99: 99th percentile of the response times of all operations, in microseconds.
        response: response times of all repetitions merged, by operation, and ``all`` for all
            operations.
        service: service times of all repetitions merged, by operation, and ``all`` for all
            operations; empty in a closed loop.
        generator_limited: whether the load generator, rather than the server, was the bottleneck.
        checks: the checks of the repetitions; null in files of earlier versions, and for bursts.
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
        target: name of the target.
        clients: number of clients at the knee.
        rate: in an open loop, the rate at the knee, in operations per second; 0 in a closed loop.
        throughput: throughput at the knee, in operations per second.
        p99: 99th percentile of response times at the knee, in microseconds.
        reason: why the search ended: throughput stopped growing (``throughput``), a higher load
            exceeds the SLO (``slo``), the first load already exceeded the SLO (``start``), the
            highest allowed load was reached (``limit``), or the server does not accept more
            connections (``connections``).
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
        low: lower bound of the interval; null if it is infinite.
        high: upper bound of the interval; null if it is infinite.
    """

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class UslFit:
    """The Universal Scalability Law, fitted to the throughputs of a target.

    Attributes:
        contention: σ, the contention coefficient.
        coherency: κ, the coherency coefficient.
        rate: γ, the throughput of one client, in operations per second.
        peak_clients: N*, the number of clients at which throughput peaks.
        peak_throughput: throughput at the peak, in operations per second.
        explained: share of the variation of throughput that the fit explains (R²).
        warnings: conclusions that the data do not support, in sentences.
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
        target: name of the target.
        value_size: size of a value in bytes.
        under: numbers of clients with which the target is under-saturated.
        saturated: numbers of clients with which the target is saturated: throughput is at least 95%
            of the highest.
        over: numbers of clients with which the target is over-saturated: throughput is lower, with
            more clients than at the highest throughput.
        uncertain: numbers of clients, of any range, whose confidence interval extends into another
            range.
        knee: smallest number of clients with which the target is saturated; null if it never
            is.
        knee_above: largest number of clients that is certainly below the knee; 0 if none is.
        knee_at_most: smallest number of clients that is certainly not below the knee; null if none
            is.
        asymptotic_knee: number of clients at which the asymptotic bounds for light and for heavy
            load meet.
        most_power: number of clients with the highest ratio of throughput to response time (power);
            null if response times are not known.
        usl: fit of the Universal Scalability Law; null with fewer than four numbers of clients.
        warnings: conclusions that the data do not support, in sentences.
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
    """The parts of a cluster that the load tester launched.

    Attributes:
        nodes: number of nodes.
        path: how requests reach the nodes: through a proxy (``proxied``), directly from clients
            that know the nodes (``direct``), or directly from clients that ask a proxy for the
            nodes when they connect (``asked``).
        proxies: number of proxies, over which clients are spread; 0 if there is no proxy.
        in_flight: limit of each proxy's requests in flight to the nodes (``--in-flight``); 0
            without a limit, and in files of earlier versions.
    """

    nodes: int
    path: str
    proxies: int = 1
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """The machine that a process ran on.

    Attributes:
        machine: name of the machine, as the user gave it.
        cores: number of cores of the machine.
        cpu: processor of the machine.
    """

    machine: str
    cores: int
    cpu: str = ""


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """A measured server, or cluster.

    Attributes:
        name: display name, unique among the targets.
        kind: for servers that the load tester launched, the backend, such as ``memory``, ``file``,
            ``gcs`` or ``valkey``; ``cluster`` for clusters that it launched; ``server`` for other
            servers.
        address: address on which the target listened; for a cluster without a proxy, that of the
            first node.
        server: version that the target reports, such as ``1.6.18``.
        details: other properties, such as durability or the emulator's latency profile.
        cluster: for a cluster, its parts; otherwise null.
        machines: types of the machines on which the target ran, as the user named them, with the
            number of machines of each type. Empty if the user named none.
        placed: for a cluster on other machines than that of the load generator, the machine of each
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
        title: title of the report.
        started: start time, unix time.
        seconds: duration of the whole run; for a resumed run, the time since it was resumed.
        partial: whether the run ended early.
        command: the command line.
        seed: seed of all random numbers.
        client: ``text`` for the built-in client, or ``pymemcache``.
        workers: number of worker processes of the load generator.
        machine: the machine of the load generator: ``cpu``, ``cores``, ``memory_bytes``,
            ``system``, ``python``, ``hostname`` and so on.
        versions: versions of memlite and of the packages it uses.
        workload: the workload, structured as in a workload file.
        targets: the measured servers.
        points: the measurements, by target and load.
        bursts: measurements of bursts: new clients arrive all at once, and each sets and gets its
            own key. Comparisons with a ``steady`` workload include bursts.
        knees: results of searches for the knee.
        saturation: where each target saturates, for each value size that was measured with two or
            more numbers of clients.
        failure: why the run ended early; empty if it did not, or if the user interrupted it.
        mixed: differences between the systems on which the run was measured, if it was interrupted
            and resumed on another system; otherwise empty.
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
