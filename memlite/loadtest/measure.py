"""One measurement: workers carry a task out, and what they wrote down becomes a `Repetition`."""

import time
from collections.abc import Mapping, Sequence

from memlite.loadtest.pool import Interrupted, Pool
from memlite.loadtest.progress import Watcher
from memlite.loadtest.recorder import Recording, Tally, percentile
from memlite.loadtest.results import Latency, Repetition, ServerUse, Slice
from memlite.loadtest.statistics import latency, new_histogram
from memlite.loadtest.targets import Target
from memlite.loadtest.worker import Task

__all__ = ["measure", "repetition_of"]


def measure(
    pool: Pool, target: Target, tasks: Sequence[Task], number: int, watcher: Watcher
) -> Repetition:
    """Carry out a measurement.

    Args:
        pool: the workers.
        target: what is measured.
        tasks: for each worker.
        number: the repetition's.
        watcher: is told how it goes.

    Raises:
        StartError: the target cannot be reached, or has died.
        Interrupted: the user wants it to end; with what was measured by then.
    """
    target.check()
    started = time.time()
    before = target.usage()
    began = time.perf_counter()

    def note() -> None:
        nonlocal before, began, started
        before, began, started = target.usage(), time.perf_counter(), time.time()

    try:
        recording = pool.run(tasks, watcher.glance, note)
    except Interrupted as interrupted:
        if interrupted.recording is None:
            raise
        recording = interrupted.recording
        found = repetition_of(recording, number, started, None)
        raise Interrupted(recording, found) from None
    after, seconds = target.usage(), time.perf_counter() - began
    target.check()
    use = None
    if before is not None and after is not None:
        cpu = after[0] - before[0]
        use = ServerUse(round(cpu, 3), round(cpu / seconds, 4), after[1])
    return repetition_of(recording, number, started, use)


def repetition_of(
    recording: Recording, number: int, started: float, use: ServerUse | None
) -> Repetition:
    """Return what was written down, in the form in which it is saved."""
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
        server=use,
        generator_share=round(recording.busiest / seconds, 4),
        generator_cpu=round(recording.cpu / max(counts.operations, 1) * 1e6, 2),
        lateness=percentile(recording.lateness, 0.99),
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
    return [
        Slice(
            second,
            operations,
            errors,
            percentile(tally, 0.5) if tally else None,
            percentile(tally, 0.99) if tally else None,
        )
        for second, (tally, operations, errors) in sorted(recording.seconds.items())
    ]
