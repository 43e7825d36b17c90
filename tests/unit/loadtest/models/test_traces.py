"""Proxies' traces, read in pieces."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.core.errors import ConfigError
from memlite.lab import Station, closed_mmm, exponentiality
from memlite.loadtest.models import traces
from memlite.loadtest.models.study import model_targets
from memlite.loadtest.models.traces import RESOLUTION, read_trace
from memlite.proxy.trace_rows import COLUMNS
from tests.unit.loadtest.models.synthetic import SECONDS, STARTED, points, results


def queue_rows(
    start: float, seconds: float, clients: int, workers: int, service: Sequence[float]
) -> list[dict[str, object]]:
    """Return the trace of a closed loop: each client sends again when it has its reply."""
    free, due = [start] * workers, [start] * clients
    rows: list[dict[str, object]] = []
    for taken in service:
        client = due.index(min(due))
        arrival = due[client]
        if arrival > start + seconds:
            break
        worker = free.index(min(free))
        begun = max(arrival, free[worker])
        free[worker] = due[client] = begun + taken
        waiting = sum(one > arrival for one in free) >= workers
        rows.append(
            {
                "client": client, "arrival": arrival, "queue_length": int(waiting),
                "enqueued": arrival, "dequeued": begun, "sent": begun, "received": begun + taken,
                "replied": begun + taken, "worker": worker, "command": "get", "keys": 1,
                "nodes": "node-1", "result": "END", "bytes": 5, "epoch": 0,
            }
        )  # fmt: skip
    return rows


def write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    text = io.StringIO()
    text.write(",".join(map(str, COLUMNS)) + "\n")
    moments = ("arrival", "enqueued", "dequeued", "sent", "received", "replied")
    for row in sorted(rows, key=lambda row: row["replied"]):  # type: ignore[arg-type, return-value]
        values = {
            name: int(float(str(value)) * 1e6) if name in moments else value
            for name, value in row.items()
        }
        text.write(",".join(str(values[str(name)]) for name in COLUMNS) + "\n")
    path.write_text(text.getvalue())


def test_times_of_periods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_ROWS", 700)
    monkeypatch.setattr(traces, "_DISORDER", 50)
    random = np.random.default_rng(1)
    first = queue_rows(STARTED, 10, 4, 2, random.exponential(0.01, 2500).tolist())
    second = queue_rows(STARTED + 100, 10, 1, 2, [0.02] * 2500)
    path = tmp_path / "trace.csv"
    write(path, [*first, *second])
    found = read_trace(
        path, [[(STARTED, STARTED + 10)], [(STARTED + 100, STARTED + 110)], [(0.0, 1.0)]]
    )
    one, other, nothing = found
    assert one.requests == len(first)
    assert one.workers == 2
    assert one.service.mean == pytest.approx(0.01, rel=0.05)
    assert one.service.cv == pytest.approx(1, rel=0.06)
    assert one.gaps.count == len(first) - 1
    model = closed_mmm(4, 0, 100, 2)
    assert one.throughput == pytest.approx(model.throughput, rel=0.05)
    assert one.queue.mean == pytest.approx(model.waiting_time, rel=0.1)
    test = exponentiality(one.service, RESOLUTION)
    assert test is not None
    assert not test.rejected
    assert other.service.cv == pytest.approx(0, abs=1e-3)
    assert other.nodes["node-1"].mean == pytest.approx(0.02)
    assert other.queue.mean == 0
    test = exponentiality(other.service, RESOLUTION)
    assert test is not None
    assert test.rejected
    assert nothing.requests == 0


def test_a_trace_makes_the_workers_a_station(tmp_path: Path) -> None:
    """Two workers take a constant 10 ms for each request, so an M/M/2 queue does not fit."""
    # With constant service times and no more clients than workers, no request waits.
    measured = points("p", [Station("w", 0.01, 2)], lambda _: {"server": 1e-5}, clients=[1, 2])
    rows = []
    for one in measured:
        for repetition in one.repetitions:
            rows += queue_rows(repetition.started, SECONDS, one.clients, 2, [0.01] * 500)
    path = tmp_path / "trace.csv"
    write(path, rows)
    (target,) = model_targets(results(measured), [path])
    name = "proxy's workers"
    assert target.inputs.demands[name].value == pytest.approx(0.01, rel=1e-3)
    assert target.inputs.bottleneck == name
    found = {one.model.name: one for one in target.assessments}
    queue = found[f"M/M/2 of {name}"]
    assert not queue.fits
    assert any(
        "service times at proxy's workers are not exponential" in one for one in queue.reasons
    )
    assert any("coefficient of variation is" in one and "not 1" in one for one in queue.reasons)


def test_a_trace_from_another_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    write(path, queue_rows(STARTED - 900, 1, 1, 1, [0.01] * 10))
    measured = points("p", [Station("w", 0.01)], lambda _: {"server": 0.01})
    with pytest.raises(ConfigError, match="has no requests from the time of this run"):
        model_targets(results(measured), [path])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a proxy's trace: it has no column arrival"),
        ("time,operation\n1,get\n", "no column arrival"),
        (",".join(map(str, COLUMNS)) + "\n" + ",".join(["x"] * len(COLUMNS)), "could not convert"),
    ],
)
def test_files_that_are_not_traces(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_trace(path, [[(0.0, 1.0)]])
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.csv", [[(0.0, 1.0)]])
