"""The data that the page reads: JSON at ``/api/``, and a stream of events."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import orjson
from aiohttp import web

from memlite.core.version import __version__
from memlite.server.http.documents import Document
from memlite.server.http.history import STEP_SECONDS, Recorder
from memlite.server.http.site import HEADERS, Page, document_reply, text_reply
from memlite.telemetry.points import FIGURES, Point
from memlite.telemetry.proxy import NodeStats, ProxySnapshot, ProxyStats
from memlite.telemetry.slow import SlowStats
from memlite.telemetry.snapshot import (
    DURATION_LIMITS,
    BackendStats,
    Durations,
    HotKeysStats,
    Snapshot,
)

__all__ = ["MAX_STREAMS", "Api"]

MAX_STREAMS: Final = 16
"""The maximum number of streams of events."""

_JSON: Final = "application/json"
_FEW: Final = 5
_SLOW_SHOWN: Final = 20


class Api:
    """Answers requests for figures.

    Args:
        recorder: holds the figures.
        hot_keys: returns the most requested keys.
        slow: returns the last slow commands; None without a slow log.
        shows_keys: whether to show the names of keys.
    """

    def __init__(
        self,
        recorder: Recorder,
        hot_keys: Callable[[], HotKeysStats],
        slow: Callable[[], SlowStats | None],
        *,
        shows_keys: bool,
    ) -> None:
        self._recorder = recorder
        self._hot_keys = hot_keys
        self._slow = slow
        self._shows_keys = shows_keys
        self._now_of: Snapshot | None = None
        self._now_made = Document(b"")
        self._history_until: Point | None = None
        self._history_made: asyncio.Task[Document] | None = None

    def pages(self) -> Mapping[str, Page]:
        """Return the pages by path."""
        return {
            "/api/now": self._now,
            "/api/history": self._history,
            "/api/events": self._events,
        }

    async def _now(self, request: web.BaseRequest) -> web.StreamResponse:
        self._recorder.look()
        return document_reply(request, self._present(), _JSON)

    async def _history(self, request: web.BaseRequest) -> web.StreamResponse:
        points = self._recorder.history
        last = points[-1] if points else None
        if self._history_made is None or self._history_until is not last:
            # In a thread: an hour takes some milliseconds, mostly in zlib, which releases the GIL.
            making = asyncio.to_thread(_history_of, list(points))
            self._history_made = asyncio.get_running_loop().create_task(making)
            self._history_until = last
        return document_reply(request, await asyncio.shield(self._history_made), _JSON)

    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {**HEADERS, "Content-Type": "text/event-stream"}
        if request.method == "HEAD":
            return web.Response(headers=headers)
        if self._recorder.followers >= MAX_STREAMS:
            return text_reply("too many clients are following this server", 503)
        response = web.StreamResponse(headers=headers)
        stream = self._recorder.follow()
        try:
            await response.prepare(request)
            await response.write(b"retry: 2000\n\n")
            while (event := await stream.get()) is not None:
                data = self._present().plain if event == "now" else self._last_point()
                await response.write(b"event: %b\ndata: %b\n\n" % (event.encode(), data))
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client has disconnected, or the server is stopping
        finally:
            self._recorder.unfollow(stream)
        return response

    def _last_point(self) -> bytes:
        return orjson.dumps(_as_json(self._recorder.history[-1]))

    def _present(self) -> Document:
        """Return the last snapshot, rendered once for all requests and streams."""
        if self._now_of is not self._recorder.snapshot:
            self._now_of = self._recorder.snapshot
            self._now_made = Document(self._describe())
        return self._now_made

    def _describe(self) -> bytes:
        """Return the present state as JSON."""
        recorder = self._recorder
        snapshot, latest = recorder.snapshot, recorder.latest
        figures = latest.figures if latest is not None else (None,) * len(FIGURES)
        return orjson.dumps(
            {
                "version": __version__,
                "uptime_seconds": round(snapshot.general.uptime),
                "build": snapshot.build,
                "event_loop": snapshot.general.event_loop,
                "troubles": snapshot.troubles,
                "connection_limit": snapshot.general.connection_limit,
                "sample_interval": snapshot.sample_interval,
                "figures": dict(zip(FIGURES, figures, strict=True)),
                "counters": snapshot.general.counters._asdict(),
                "store": _store(snapshot),
                "operations": [
                    {"operation": operation, "outcome": outcome, **_summary(durations)}
                    for (operation, outcome), durations in snapshot.operations.items()
                ],
                "hot_keys": self._hottest(),
                "proxy": _proxy(snapshot.proxy) if isinstance(snapshot, ProxySnapshot) else None,
                "slow": self._slowest(),
            }
        )

    def _hottest(self) -> list[dict[str, object]]:
        found = self._hot_keys()
        least = _FEW * found.sample_interval
        return [
            {
                "key": hot.key.decode("utf-8", "backslashreplace") if self._shows_keys else None,
                "percent": round(hot.percent, 2),
                "per_second": round(hot.per_second, 1),
            }
            for hot in found.keys
            if hot.requests >= least
        ]

    def _slowest(self) -> dict[str, object] | None:
        """Return the last slow commands, the newest first; None without a slow log."""
        found = self._slow()
        if found is None:
            return None
        return {
            "threshold_seconds": found.threshold / 1e9,
            "count": found.count,
            "commands": [
                {
                    "time": round(one.time, 3),
                    "seconds": round(one.nanoseconds / 1e9, 6),
                    "command": one.command,
                    "keys": one.keys,
                    "key": self._shown(one.key, cut=one.cut),
                }
                for one in found.commands[:_SLOW_SHOWN]
            ],
        }

    def _shown(self, key: bytes | None, *, cut: bool) -> str | None:
        if key is None or not self._shows_keys:
            return None
        return key.decode("utf-8", "backslashreplace") + ("…" if cut else "")


def _history_of(points: list[Point]) -> Document:
    """Return the history, both plain and compressed."""
    found = {
        "step_seconds": STEP_SECONDS,
        "figures": FIGURES,
        "duration_limits_seconds": [limit / 1e9 for limit in DURATION_LIMITS],
        "points": [_as_json(one) for one in points],
    }
    document = Document(orjson.dumps(found))
    _ = document.compressed  # compress it now, in this thread
    return document


def _as_json(one: Point) -> list[object]:
    return [one.figures, one.durations]


def _store(snapshot: Snapshot) -> dict[str, object] | None:
    """Return the description of the store; None for a proxy, which has none."""
    storage = snapshot.storage
    if storage is None:
        return None
    figures = dict(storage.figures) if isinstance(storage, BackendStats) else {}
    return {"url": storage.url, "figures": figures}


def _proxy(proxy: ProxyStats) -> dict[str, object]:
    """Return the figures that only a proxy has."""
    queue, move = proxy.queue, proxy.move
    return {
        "commands": [
            {"class": kind, "result": result, "count": count}
            for (kind, result), count in proxy.commands.items()
        ],
        "hash": proxy.hash,
        "replicas": proxy.replicas,
        "version": proxy.version,
        "epoch": proxy.epoch,
        "nodes": [_node(node) for node in proxy.nodes],
        "multigets": proxy.multigets,
        "failed_requests": proxy.failed_requests,
        "failed_shards": proxy.failed_shards,
        "replica_reads": proxy.replica_reads,
        "gutter_requests": proxy.gutter_requests,
        "promoted_keys": proxy.hot_keys,
        "unread_bytes": proxy.unread_bytes,
        "unread_disconnects": proxy.unread_disconnects,
        "queue": None
        if queue is None
        else {
            "in_flight_limit": queue.in_flight_limit,
            "in_flight": queue.in_flight,
            "length": queue.length,
            "arrivals": queue.arrivals,
            "refused": queue.refused,
            "expired": queue.expired,
            "dropped": queue.dropped,
            "waiting": _summary(queue.waiting),
            "service": _summary(queue.service),
            "thinking": _summary(queue.thinking),
        },
        "move": None
        if move is None
        else {
            "phase": move.phase,
            "items": move.items,
            "total": move.total,
            "requests": proxy.moving_requests,
        },
    }


def _node(node: NodeStats) -> dict[str, object]:
    return {
        "name": node.name,
        "address": node.address,
        "role": node.role,
        "up": node.up,
        "count": node.count,
        "state": node.state,
        "error": node.error,
        "requests": node.requests,
        "failures": node.failed,
        "timeouts": node.timeouts,
        "connections": node.connects,
        "emptied": node.emptied,
        "pending": node.pending,
        "share": round(node.share, 6),
        "next_share": None if node.next_share is None else round(node.next_share, 6),
        "service": None if node.service is None else _summary(node.service),
    }


def _summary(durations: Durations) -> dict[str, float]:
    """Return the number of durations, and their mean in seconds."""
    mean = durations.total / durations.samples / 1e9 if durations.samples else 0.0
    return {"count": durations.samples, "mean_seconds": round(mean, 9)}
