"""Spans: the time taken by a request or a part of it, independent of any library."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

__all__ = ["Span", "SpanName"]


class SpanName(NamedTuple):
    """The identifiers of a span, as in W3C Trace Context.

    Attributes:
        trace: the id of the trace, 128 bits, not 0.
        span: the id of the span in it, 64 bits, not 0.
    """

    trace: int
    span: int


class Span(NamedTuple):
    """A finished span.

    Attributes:
        name: the name of the operation.
        itself: its identifiers.
        parent: the span that it is part of; None if there is none.
        kind: ``server`` for a client's request, ``client`` for a request to another service,
            ``internal`` for anything else.
        start: unix time in nanoseconds.
        end: likewise.
        attributes: further attributes, named by OpenTelemetry's conventions where those have a
            name.
        failure: what failed; empty on success.
        links: other spans that it was part of as well.
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
