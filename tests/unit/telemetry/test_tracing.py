"""Spans of requests, and of the store's operations during them."""

import asyncio

from memlite.telemetry.snapshot import DURATION_LIMITS, Exemplar
from memlite.telemetry.spans import Span, SpanName
from memlite.telemetry.tracing import Tracer


def tracer(share: float = 1.0) -> tuple[Tracer, list[Span]]:
    spans: list[Span] = []
    return Tracer(spans.append, share, "gs://bucket", dict), spans


def test_an_operation_belongs_to_the_request_in_whose_course_it_happens() -> None:
    tracing, spans = tracer()
    parent = SpanName(7, 8)
    request = tracing.begin("get", parent, 2, changes=False)
    request.carry_out(lambda: tracing.operation("read", "failed", 1000))
    tracing.operation("read", "ok", 1000)  # not part of this request
    request.ready()
    request.end("SERVER_ERROR", failed=True)
    operation, whole = spans
    assert whole.parent == parent
    assert whole.itself.trace == 7
    assert whole.failure == "SERVER_ERROR"
    assert whole.attributes["db.operation.batch.size"] == 2
    assert operation.parent == whole.itself
    assert operation.itself.trace == 7
    assert operation.failure == "failed"
    assert operation.end - operation.start == 1000


async def test_tasks_that_outlive_a_request_are_not_part_of_it() -> None:
    tracing, spans = tracer()
    request = tracing.begin("set", changes=True)
    go_on = asyncio.Event()

    async def background() -> None:
        tracing.operation("during", "ok", 1)
        await go_on.wait()
        tracing.operation("after", "ok", 1)

    tasks: list[asyncio.Task[None]] = []
    request.carry_out(lambda: tasks.append(asyncio.create_task(background())))
    await asyncio.sleep(0)
    request.ready()
    go_on.set()
    await tasks[0]
    assert [span.name for span in spans] == ["during"]


def test_an_fsync_is_for_all_changes_that_wait() -> None:
    tracing, spans = tracer()
    first = tracing.begin("set", changes=True)
    second = tracing.begin("delete", changes=True)
    reading = tracing.begin("get", changes=False)
    tracing.operation("fsync", "ok", 0)
    (sync,) = spans
    assert sync.parent == first.itself
    assert sync.links == (second.itself,)
    for one in (first, second, reading):
        one.ready()
    tracing.operation("fsync", "ok", 0)
    assert len(spans) == 1


def test_a_share_of_requests_is_chosen() -> None:
    tracing, _ = tracer(0.25)
    # 250 are expected, with a standard deviation of 14.
    assert 150 < sum(tracing.chooses() for _ in range(1000)) < 350


def test_the_last_measured_request_of_each_class_of_durations_is_kept() -> None:
    kept: dict[str, dict[int, Exemplar]] = {}
    tracing = Tracer([].append, 1.0, "memory://", lambda: kept)
    for nanoseconds, index in ((1, 0), (1023, 0), (1024, 1), (2**40, len(DURATION_LIMITS))):
        exemplar = Exemplar(SpanName(1, nanoseconds), nanoseconds, 5)
        tracing.measured("get", exemplar)
        assert kept["get"][index] == exemplar
    request = tracing.begin("set", changes=True, measured="store")
    request.ready()
    request.end("STORED", failed=False)
    (found,) = kept["store"].values()
    assert found.span == request.itself
    asked_for = tracing.begin("mg", SpanName(1, 2), changes=False)
    asked_for.ready()
    asked_for.end("HD", failed=False)
    assert kept.keys() == {"get", "store"}
