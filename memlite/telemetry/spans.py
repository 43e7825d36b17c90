"""Spans: what a request, or a part of it, took, independent of any library."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

__all__ = ["Span", "SpanName"]


class SpanName(NamedTuple):
    """What identifies a span, as W3C Trace Context has it.

    Attributes:
        trace: of the trace, 128 bits, not 0.
        span: of the span in it, 64 bits, not 0.
    """

    trace: int
    span: int


class Span(NamedTuple):
    """A span that is over.

    Attributes:
        name: what was done.
        itself: identifies it.
        parent: the span in whose course it happened; None if there is none.
        kind: ``server`` for what a client asked for, ``client`` for what somebody else was asked
            for, ``internal`` for the rest.
        start: unix time in nanoseconds.
        end: likewise.
        attributes: what else is known of it, by names of OpenTelemetry's conventions where there
            are some.
        failure: what failed; empty if nothing did.
        links: other spans for which it happened as well.
    """

    name: str
    itself: SpanName
    parent: SpanName | None
    kind: Literal["server", "client", "internal"]
    start: int
    end: int
    attributes: Mapping[str, str | int]
    failure: str = ""
    links: tuple[SpanName, ...] = ()
