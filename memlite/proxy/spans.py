"""Spans of requests that pass through a proxy, and how they are passed on to nodes."""

import re
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal

from memlite.proxy.queue import Ticket
from memlite.proxy.trace import Choice, Sample
from memlite.proxy.trace_rows import command_of
from memlite.server.execution.results import failed, result_of
from memlite.telemetry.spans import Span, SpanName
from memlite.telemetry.tracing import new_name

__all__ = ["SpanTrace", "with_parent"]

_SYSTEM: Final = {"db.system.name": "memcached"}
_META: Final = (b"mg ", b"ms ", b"md ", b"ma ")
_HINT: Final = re.compile(rb" P(?:00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?=[ \r]))?")
_MAX_WORDS: Final = 16
"""The most words a line may have to be given another flag; memcached accepts about twenty."""


class SpanTrace:
    """Makes spans of requests; see `memlite.proxy.queue.Tracer`.

    A meta command carries the name of its span to the node, as the token of the flag P, which is
    meant for proxies: nodes do not return it, so the client does not see it. Other commands have no
    room for it.

    Args:
        take: takes the spans.
        sample: which requests are traced.
        every: one in this many of the requests it receives is traced.
    """

    def __init__(self, take: Callable[[Span], None], sample: Sample, every: int) -> None:
        self._take = take
        self._choice = Choice(sample, every)
        # Whether a request is slow or has failed is known only when it has finished.
        self._tells_nodes = not (sample.slow or sample.failed)
        self._offset = time.time_ns() - time.monotonic_ns()

    def begin(self, ticket: Ticket) -> None:
        """Take a request that is about to be sent."""
        if not ticket.sends or not self._choice.counts():
            return
        first = ticket.sends[0][1]
        ticket.parent = _parent_of(first)
        ticket.span = new_name(ticket.parent)
        if self._tells_nodes:
            span = ticket.span
            ticket.sends = [
                (target, with_parent(data, span), receiver)
                for target, data, receiver in ticket.sends
            ]

    def record(self, ticket: Ticket) -> None:
        """Take a finished request."""
        span = ticket.span
        if span is None or not self._choice.sample.has(ticket):
            return
        command, keys = command_of(ticket)
        nodes = " ".join(str(getattr(target, "name", "")) for target, _, _ in ticket.sends)
        result = result_of(ticket.reply)
        attributes: dict[str, str | int] = {
            **_SYSTEM,
            "db.operation.name": command,
            "db.response.status_code": result,
        }
        if len(keys) > 1:
            attributes["db.operation.batch.size"] = len(keys)
        failure = result if ticket.failed or failed(result) else ""
        start, end = ticket.arrival + self._offset, ticket.replied_at + self._offset
        self._take(Span(command, span, ticket.parent, "server", start, end, attributes, failure))
        if ticket.worker >= 0:
            self._part(ticket, "queue", "internal", ticket.enqueued, ticket.dequeued, {})
        if ticket.received and ticket.dequeued:
            asked = {**_SYSTEM, "db.operation.name": command, "memlite.nodes": nodes}
            self._part(ticket, "nodes", "client", ticket.dequeued, ticket.received, asked)

    def _part(
        self,
        ticket: Ticket,
        name: str,
        kind: Literal["client", "internal"],
        start: int,
        end: int,
        attributes: Mapping[str, str | int],
    ) -> None:
        itself = new_name(ticket.span)
        times = start + self._offset, end + self._offset
        self._take(Span(name, itself, ticket.span, kind, *times, attributes))


def with_parent(request: bytes, span: SpanName) -> bytes:
    """Return a request with the name of a span, if it is a meta command with room for it."""
    if request[:3] not in _META:
        return request
    end = request.find(b"\r\n")
    hint = b" P00-%032x-%016x-01" % span
    found = _hint_in(request)
    if found is not None:
        # Keep a flag P of the client's that does not name a span: there can be only one.
        return request[: found.start()] + hint + request[found.end() :] if found[1] else request
    if end < 0 or request.count(b" ", 0, end) >= _MAX_WORDS:
        return request
    return request[:end] + hint + request[end:]


def _hint_in(request: bytes) -> "re.Match[bytes] | None":
    """Return the flag P of a meta command."""
    end = request.find(b"\r\n")
    flags = request.find(b" ", 3, end)  # after the key, which may begin with any letter
    return _HINT.search(request, flags, end + 1) if 0 <= flags < end else None


def _parent_of(request: bytes) -> SpanName | None:
    """Return the client's span, which meta commands may name."""
    found = _hint_in(request) if request[:3] in _META else None
    if found is None or found[1] is None:
        return None
    name = SpanName(int(found[1], 16), int(found[2], 16))
    return name if name.trace and name.span else None
