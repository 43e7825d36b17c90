"""The trace's file: rotation, faults and the choice of requests."""

import csv
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from memlite.core.errors import ConfigError, StartError
from memlite.proxy.cluster import Cluster
from memlite.proxy.queue import RequestQueue, Ticket
from memlite.proxy.trace import Sample, Trace, Tracing, parse_sample
from memlite.proxy.trace_rows import COLUMNS, row_of
from memlite.server.scheduler import Scheduler
from tests.support.waiting import wait_until


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


class Version:
    version = 7


class Timers(Scheduler):
    """Calls nothing; the test writes rows itself."""

    def call_later(self, *_: object) -> Any:
        return self

    def cancel(self) -> None:
        """Do nothing."""


def ticket(*requests: tuple[str, bytes], reply: bytes = b"END\r\n", **fields: Any) -> Ticket:
    queue = cast("RequestQueue", None)
    client = cast("Any", type("Client", (), {"number": 3, "gone": False, "replied": 0})())
    sends = cast("Any", [(Named(node), data, None) for node, data in requests])
    made = Ticket(queue, client, sends, None, reads=True)
    made.reply = reply
    made.arrival, made.enqueued, made.replied_at = 1000, 2000, 9000
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def trace_to(path: Path, sample: Sample | None = None, every: int = 1) -> Trace:
    tracing = Tracing(path, sample or Sample())
    trace = Trace(tracing, cast("Cluster", Version()), Timers(), every)
    trace.start()
    return trace


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_has_every_column() -> None:
    made = ticket(
        ("a", b"get k1 k2\r\n"), ("b", b"get k3\r\n"), reply=b"VALUE k1 0 1\r\nx\r\nEND\r\n"
    )
    row = dict(zip(COLUMNS, row_of(made, 0, 7, names=False), strict=True))
    assert row == {
        "client": 3, "arrival": 1, "queue_length": 0, "enqueued": 2, "dequeued": "", "sent": "",
        "received": "", "replied": 9, "worker": "", "command": "get", "keys": 3, "nodes": "a b",
        "result": "VALUE", "bytes": 22, "epoch": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "command", "keys"),
    [
        (b"set k 0 0 3\r\na b\r\n", "set", "k"),
        (b"gat 10 k1 k2\r\n", "gat", "k1 k2"),
        (b"flush_all 10\r\n", "flush_all", ""),
        (b"mg k v f\r\n", "mg", "k"),
        (b'get "k,\xff\r\n', "get", '"k,\\xff'),
    ],
)
def test_keys_are_named_if_asked_for(request_: bytes, command: str, keys: str) -> None:
    row = dict(zip(COLUMNS, row_of(ticket(("a", request_)), 0, 7, names=True), strict=True))
    assert (row["command"], row["keys"]) == (command, keys)


def test_results_of_binary_clients_are_their_status() -> None:
    row = row_of(
        ticket(("a", b"mg k\r\n"), reply=b"\x81" + b"\0" * 6 + b"\1" + b"\0" * 16),
        0,
        7,
        names=False,
    )
    assert row[COLUMNS.index("result")] == "status 1"


@pytest.mark.parametrize(
    ("text", "sample"),
    [
        ("all", Sample()),
        ("failed", Sample(failed=True)),
        ("1/100", Sample(every=100)),
        ("slow:10ms", Sample(slow=10_000_000)),
        ("slow:1.5s", Sample(slow=1_500_000_000)),
        ("slow:250us", Sample(slow=250_000)),
    ],
)
def test_samples(text: str, sample: Sample) -> None:
    assert parse_sample(text) == sample


@pytest.mark.parametrize("text", ["", "some", "2/3", "1/0", "1/-1", "slow", "slow:10", "slow:xms"])
def test_bad_samples_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be all, failed, slow:10ms or 1/100, not"):
        parse_sample(text)


def test_the_sample_decides(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    trace = trace_to(path, Sample(slow=5000))
    trace.record(ticket(("a", b"get slow\r\n")))
    trace.record(ticket(("a", b"set quick\r\n"), replied_at=1500))
    trace.stop()
    assert [row["command"] for row in rows(path)] == ["get"]


def test_one_in_ten_requests_is_traced(tmp_path: Path) -> None:
    trace = trace_to(tmp_path / "t.csv", every=10)
    for _ in range(95):
        trace.record(ticket(("a", b"get k\r\n")))
    trace.stop()
    assert len(rows(tmp_path / "t.csv")) == 10


def test_rows_are_appended_below_one_header(tmp_path: Path) -> None:
    for _ in range(2):
        trace = trace_to(tmp_path / "t.csv")
        trace.record(ticket(("a", b"get k\r\n")))
        trace.stop()
    assert len(rows(tmp_path / "t.csv")) == 2
    assert (tmp_path / "t.csv").read_text().count("arrival") == 1


def test_a_renamed_or_removed_file_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    trace = trace_to(path)
    trace.record(ticket(("a", b"get k\r\n")))
    trace.hand_over()
    assert wait_until(lambda: trace.written == 1)
    path.rename(tmp_path / "old.csv")
    trace.reopen()
    assert wait_until(path.exists)
    path.unlink()
    trace.record(ticket(("a", b"set k\r\n")))
    trace.stop()
    assert [row["command"] for row in rows(tmp_path / "old.csv")] == ["get"]
    assert [row["command"] for row in rows(path)] == ["set"]


def test_a_full_disk_costs_rows_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "memlite")
    path = tmp_path / "t.csv"
    trace = trace_to(path)
    path.unlink()
    path.symlink_to("/dev/full")
    for number in range(3):
        trace.record(ticket(("a", b"get k\r\n")))
        trace.hand_over()
        assert wait_until(lambda expected=number + 1: trace.dropped == expected)
    path.unlink()
    trace.record(ticket(("a", b"set k\r\n")))
    trace.stop()
    assert [row["command"] for row in rows(path)] == ["set"]
    assert (trace.written, trace.dropped) == (1, 3)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        f"--trace: cannot write {path}: No space left on device; rows are dropped",
        f"--trace: {path} can be written again",
    ]


def process_of(trace: Trace) -> int:
    """Return the pid of the process that writes the file."""
    process = trace._writer._process
    assert process is not None
    return process.pid


def test_a_process_that_is_killed_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "memlite")
    path = tmp_path / "t.csv"
    trace = trace_to(path)
    trace.record(ticket(("a", b"get k\r\n")))
    trace.hand_over()
    assert wait_until(lambda: trace.written == 1)
    first = process_of(trace)
    os.kill(first, signal.SIGSTOP)
    trace.record(ticket(("a", b"set k\r\n")))
    trace.hand_over()
    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: trace.dropped == 1)
    trace.record(ticket(("a", b"touch k\r\n")))
    trace.hand_over()
    assert wait_until(lambda: trace.written == 2)
    assert process_of(trace) != first
    trace.stop()
    assert [row["command"] for row in rows(path)] == ["get", "touch"]
    assert [record.getMessage() for record in caplog.records] == [
        f"--trace: the process that writes {path} has ended; rows may be missing",
        f"--trace: {path} can be written again",
    ]


def test_a_process_that_hangs_does_not_delay_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlite.proxy.trace_writer._STOPPING", 0.1)
    trace = trace_to(tmp_path / "t.csv")
    os.kill(process_of(trace), signal.SIGSTOP)
    for _ in range(20_000):  # more than the pipe takes
        trace.record(ticket(("a", b"get k\r\n"), client=type("Client", (), {"number": 10**60})))
    assert trace._writer.waiting == 20_000
    trace.stop()
    assert (trace.written, trace.dropped) == (0, 20_000)


def test_the_process_ends_with_the_proxy_and_not_before(tmp_path: Path) -> None:
    trace = trace_to(tmp_path / "t.csv")
    pid = process_of(trace)
    trace.record(ticket(("a", b"get k\r\n")))
    trace.hand_over()
    assert wait_until(lambda: trace.written == 1)  # it ignores signals by now
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    assert os.getpgid(pid) == pid
    trace.record(ticket(("a", b"get k\r\n")))
    trace.stop()
    assert trace.written == len(rows(tmp_path / "t.csv")) == 2
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlite.proxy.trace._MAX_ROWS", 10)
    trace = trace_to(tmp_path / "t.csv")
    for _ in range(15):
        trace.record(ticket(("a", b"get k\r\n")))
    assert trace.dropped == 5
    trace.stop()
    assert len(rows(tmp_path / "t.csv")) == 10


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"--trace: cannot write .*: Is a directory"):
        trace_to(tmp_path)
    with pytest.raises(StartError, match=r"--trace: cannot write .*: No such file or directory"):
        trace_to(tmp_path / "none" / "t.csv")
