"""Spans of requests that pass through a proxy, and how nodes learn of them."""

import time
from typing import Any

import pytest

from memlite.proxy.spans import SpanTrace, with_parent
from memlite.proxy.trace import Sample
from memlite.telemetry.spans import Span, SpanName
from tests.unit.proxy.test_trace import ticket

SPAN = SpanName(0xAB, 0xCD)
HINT = b"P00-000000000000000000000000000000ab-00000000000000cd-01"
OTHER = b"P00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (b"mg key\r\n", b"mg key " + HINT + b"\r\n"),
        (b"mg Pkey v\r\n", b"mg Pkey v " + HINT + b"\r\n"),
        (b"ms key 3 T0\r\nv P\r\n", b"ms key 3 T0 " + HINT + b"\r\nv P\r\n"),
        (b"md key q %b I\r\n" % OTHER, b"md key q " + HINT + b" I\r\n"),
        (b"mg key %b\r\n" % OTHER, b"mg key " + HINT + b"\r\n"),
        (b"mg key Phint v\r\n", None),
        (b"mg key P\r\n", None),
        (b"mg key" + b" v" * 16 + b"\r\n", None),
        (b"mn\r\n", None),
        (b"get key\r\n", None),
        (b"set mg 0 0 1\r\nx\r\n", None),
    ],
)
def test_meta_commands_name_the_span(request_: bytes, named: bytes | None) -> None:
    assert with_parent(request_, SPAN) == (request_ if named is None else named)


def spans_of(*tickets: Any, sample: Sample | None = None, every: int = 1) -> list[Span]:
    spans: list[Span] = []
    trace = SpanTrace(spans.append, sample or Sample(), every)
    for one in tickets:
        trace.begin(one)
        one.received = one.received or one.replied_at
        trace.record(one)
    return spans


def timed(*requests: tuple[str, bytes], **fields: Any) -> Any:
    now = time.monotonic_ns()
    times = {
        "arrival": now,
        "enqueued": now + 1000,
        "dequeued": now + 5000,
        "received": now + 9000,
        "replied_at": now + 10_000,
    }
    return ticket(*requests, **{**times, **fields})


def test_a_request_its_wait_and_its_nodes() -> None:
    one = timed(("n1", b"get a b\r\n"), ("n2", b"get c\r\n"), worker=2)
    whole, queue, nodes = spans_of(one)
    assert (whole.name, whole.kind, whole.parent) == ("get", "server", None)
    assert whole.end - whole.start == 10_000
    assert whole.attributes["db.operation.batch.size"] == 3
    assert whole.attributes["db.response.status_code"] == "END"
    assert (queue.name, queue.kind, queue.parent) == ("queue", "internal", whole.itself)
    assert queue.end - queue.start == 4000
    assert (nodes.kind, nodes.parent) == ("client", whole.itself)
    assert nodes.attributes["memlite.nodes"] == "n1 n2"
    assert abs(whole.start - time.time_ns()) < 60e9
    assert {span.itself.trace for span in (queue, nodes)} == {whole.itself.trace}


def test_a_trace_of_the_clients_is_continued_at_the_node() -> None:
    one = timed(("n1", b"mg key v %b\r\n" % OTHER))
    whole, *_ = spans_of(one)
    assert whole.itself.trace == 0x0AF7651916CD43DD8448EB211C80319C
    assert whole.parent == SpanName(whole.itself.trace, 0xB7AD6B7169203331)
    ((_, sent, _),) = one.sends
    assert sent == b"mg key v P00-%032x-%016x-01\r\n" % whole.itself


def test_the_sample_decides() -> None:
    tickets = [timed(("n1", b"get a\r\n"), failed=index == 3) for index in range(8)]
    assert sum(span.kind == "server" for span in spans_of(*tickets, every=4)) == 2
    found = spans_of(*tickets, sample=Sample(failed=True))
    assert [span.kind for span in found] == ["server", "client"]
    assert found[0].failure == "END"
    assert all(b" P00-" not in one.sends[0][1] for one in tickets)
