"""One measurement: workers run a task, and their recordings become a `Repetition`."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from memlite.loadtest import proxy_times
from memlite.loadtest.limits import ClientRefusedError
from memlite.loadtest.messages import Task
from memlite.loadtest.pool import Interrupted, Pool
from memlite.loadtest.progress import ProgressDisplay
from memlite.loadtest.recorder import SECOND, Recording, Tally, percentile
from memlite.loadtest.results import (
    Intervals,
    Latency,
    MachineUse,
    ProxyTimes,
    Repetition,
    ServerUse,
    Slice,
)
from memlite.loadtest.statistics import latency, new_histogram
from memlite.loadtest.targets import Target
from memlite.loadtest.usage import Reading

__all__ = ["measure", "repetition_of"]


def measure(
    pool: Pool, target: Target, tasks: Sequence[Task], number: int, display: ProgressDisplay
) -> Repetition:
    """Run one repetition.

    Args:
        pool: the workers.
        target: the server to measure.
        tasks: one task for each worker.
        number: the repetition's number.
        display: shows the progress.

    Raises:
        TooManyClientsError: the target does not accept that many clients.
        StartError: the target cannot be reached or has died.
        Interrupted: the user interrupted the run; carries the measurements up to then.
    """
    target.check()
    others = [*pool.processes, *target.helpers]

    def read() -> Reading:
        return Reading(target.processes, others, target.processes_by_name)

    before, began, started = read(), time.perf_counter(), time.time()
    proxies = proxy_times.read(target.proxies)

    def mark_start() -> None:
        nonlocal before, began, started, proxies
        before, began, started = read(), time.perf_counter(), time.time()
        proxies = proxy_times.read(target.proxies)

    ended: tuple[Reading, float] | None = None

    def mark_end() -> None:
        nonlocal ended
        ended = read(), time.perf_counter() - began

    try:
        recording = pool.run(tasks, display.update, mark_start, mark_end)
    except ClientRefusedError as error:
        raise target.refusal(error, sum(task.connections for task in tasks)) from None
    except Interrupted as interrupted:
        if interrupted.recording is None:
            raise
        recording = interrupted.recording
        found = repetition_of(recording, number, started)
        raise Interrupted(recording, found) from None
    # Exclude the resources needed to sum up and send the recordings.
    after, seconds = ended or (read(), time.perf_counter() - began)
    target.check()
    return repetition_of(
        recording,
        number,
        started,
        after.server_use(before, seconds),
        after.machine_use(before, seconds),
        after.uses(before, seconds),
        proxy_times.times_between(proxies, proxy_times.read(target.proxies)),
    )


def repetition_of(
    recording: Recording,
    number: int,
    started: float,
    server: ServerUse | None = None,
    machine: MachineUse | None = None,
    processes: Mapping[str, ServerUse] = MappingProxyType({}),
    proxies: ProxyTimes | None = None,
) -> Repetition:
    """Convert a recording to the form in which results are saved."""
    counts = recording.counts
    seconds = max(recording.ended - recording.began, 1) / 1e9
    return Repetition(
        number=number,
        started=round(started, 3),
        seconds=round(seconds, 6),
        operations=counts.operations,
        hits=counts.hits,
        misses=counts.misses,
        errors=counts.errors,
        bytes_sent=counts.sent,
        bytes_received=counts.received,
        response=_latencies(recording.response),
        service=_latencies(recording.service),
        series=_series(recording),
        intervals=_intervals(recording),
        think_time=_think_time(recording),
        server=server,
        generator_share=round(recording.busiest / seconds, 4),
        generator_cpu=round(recording.cpu / max(counts.operations, 1) * 1e6, 2),
        lateness=percentile(recording.lateness, 0.99),
        in_system=round(recording.waited / 1e9 / seconds, 6) if recording.waited else None,
        cut_off=recording.cut_off,
        generator_idle=round(min(recording.idle, 1.0), 4) if recording.waited else None,
        machine=machine,
        processes=dict(processes),
        proxies=proxies,
    )


def _latencies(tallies: Mapping[str, Tally]) -> dict[str, Latency]:
    if not tallies:
        return {}
    everything = new_histogram()
    found = {}
    for kind, tally in sorted(tallies.items()):
        histogram = new_histogram()
        for value, count in tally.items():
            histogram.record_value(max(value, 1), count)
        everything.add(histogram)
        found[kind] = latency(histogram)
    return {"all": latency(everything), **found}


def _series(recording: Recording) -> list[Slice]:
    seconds: dict[int, Recording] = {}
    for number, interval in sorted(recording.intervals.items()):
        second = number * recording.interval // SECOND
        seconds.setdefault(second, Recording()).add(Recording(intervals={0: interval}))
    found = [(second, one.intervals[0]) for second, one in seconds.items()]
    return [
        Slice(second, operations, errors, _percentile(tally, 0.5), _percentile(tally, 0.99))
        for second, (tally, operations, errors) in found
    ]


def _intervals(recording: Recording) -> Intervals | None:
    complete = (recording.ended - recording.began) // recording.interval
    if not complete:
        return None
    nothing: tuple[Tally, int, int] = ({}, 0, 0)
    found = [recording.intervals.get(number, nothing) for number in range(complete)]
    return Intervals(
        seconds=recording.interval / SECOND,
        operations=[operations for _, operations, _ in found],
        p50=[_percentile(tally, 0.5) for tally, _, _ in found],
        p99=[_percentile(tally, 0.99) for tally, _, _ in found],
    )


def _percentile(tally: Tally, share: float) -> float | None:
    return percentile(tally, share) if tally else None


def _think_time(recording: Recording) -> float | None:
    count = sum(sum(tally.values()) for tally in recording.response.values())
    return round(recording.thought / count / 1000, 3) if recording.thought and count else None
