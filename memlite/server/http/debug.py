"""Information about the internals of the process, at ``/debug/`` (``--http-debug``)."""

import asyncio
import cProfile
import gc
import io
import ipaddress
import pstats
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from memlite.server.http.access import Access
from memlite.server.http.site import Page, json_reply, text_reply
from memlite.server.upkeep.allocator import heap
from memlite.server.upkeep.footprint import resident
from memlite.telemetry.counters import LatencyHistogram

__all__ = ["Debug"]

_MAX_TASKS: Final = 500
_MAX_PROFILE: Final = 60.0
_USUAL_PROFILE: Final = 5.0
_MAX_FUNCTIONS: Final = 60
_LAG_SECONDS: Final = 0.05
_PERCENTS: Final = (50, 99, 99.9)


class Debug:
    """Answers requests for information about the internals of the process.

    Requests need the token or, if there is none, must come from this machine.

    Args:
        access: the access control.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._profiling = False
        self._resident = resident()
        self._lags = LatencyHistogram()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        """Begin to measure the lag of the event loop."""
        self._loop = asyncio.get_running_loop()
        self._wait()

    def stop(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def pages(self) -> Mapping[str, Page]:
        """Return the pages by path."""
        return {
            f"/debug/{name}": self._guarded(page)
            for name, page in (
                ("stacks", self._stacks),
                ("memory", self._memory),
                ("loop", self._lag),
                ("profile", self._profile),
            )
        }

    def _guarded(self, page: Page) -> Page:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            # At this point the client has shown the token, if there is one.
            if not self._access.needs_token and not _is_loopback(request.remote):
                return text_reply(
                    "only allowed from this machine, because --http-token-file is not set", 403
                )
            return await page(request)

        return answer

    async def _stacks(self, request: web.BaseRequest) -> web.StreamResponse:
        return text_reply("\n".join((*_threads(), *_tasks())))

    async def _memory(self, request: web.BaseRequest) -> web.StreamResponse:
        return json_reply(
            {
                "resident_bytes": None if self._resident is None else self._resident(),
                "heap": heap(),
                "allocated_blocks": sys.getallocatedblocks(),
                "collector": {
                    "enabled": gc.isenabled(),
                    "thresholds": gc.get_threshold(),
                    "counts": gc.get_count(),
                    "frozen": gc.get_freeze_count(),
                    "generations": gc.get_stats(),
                },
                "threads": threading.active_count(),
                "tasks": len(asyncio.all_tasks()),
            }
        )

    async def _lag(self, request: web.BaseRequest) -> web.StreamResponse:
        lags = self._lags
        found = zip(_PERCENTS, lags.percentiles(*_PERCENTS), strict=True)
        return json_reply(
            {
                "samples": lags.count,
                "mean_seconds": lags.total / lags.count / 1e9 if lags.count else 0.0,
                **{f"p{percent:g}_seconds": lag / 1e9 for percent, lag in found},
                "max_seconds": lags.maximum / 1e9,
            }
        )

    def _wait(self) -> None:
        self._due = self._loop.time() + _LAG_SECONDS
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        # asyncio's own loop may be early by its clock's resolution.
        self._lags.record(max(0, int((self._loop.time() - self._due) * 1e9)))
        self._wait()

    async def _profile(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            seconds = float(request.query.get("seconds", _USUAL_PROFILE))
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= _MAX_PROFILE:
            return text_reply(f"seconds must be a number up to {_MAX_PROFILE:g}", 400)
        if self._profiling:
            return text_reply("profiling is already in progress", 409)
        self._profiling = True
        profile = cProfile.Profile()
        try:
            profile.enable()
            await asyncio.sleep(seconds)
        except ValueError:  # another tool's profiler
            return text_reply("another profiler is already active in this process", 409)
        finally:
            profile.disable()
            self._profiling = False
        return text_reply(await asyncio.to_thread(_as_text, profile))


def _is_loopback(address: str | None) -> bool:
    try:
        return ipaddress.ip_address(address or "").is_loopback
    except ValueError:
        return False


def _threads() -> list[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [
        f"thread {names.get(number, number)}\n" + "".join(traceback.format_stack(frame))
        for number, frame in sys._current_frames().items()
    ]


def _tasks() -> list[str]:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    shown = []
    for task in tasks[:_MAX_TASKS]:
        text = io.StringIO()
        task.print_stack(file=text)
        shown.append(f"task {task.get_name()}\n{text.getvalue()}")
    if len(tasks) > _MAX_TASKS:
        shown.append(f"and {len(tasks) - _MAX_TASKS} more tasks\n")
    return shown


def _as_text(profile: cProfile.Profile) -> str:
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(_MAX_FUNCTIONS)
    return text.getvalue()
