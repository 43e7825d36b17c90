"""The statistics of all workers, as those of one server."""

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from memlite.engine.prefixes import PrefixStats
from memlite.server.admin.stats_collector import StatsCollector
from memlite.server.interfaces import ConnectionInfo
from memlite.server.workers.board import Cell, Control, Topic
from memlite.server.workers.member import Member
from memlite.telemetry.counters import LatencyHistogram
from memlite.telemetry.hotkeys import merge_estimates
from memlite.telemetry.snapshot import (
    CounterValues,
    Durations,
    GeneralStats,
    HotKeysStats,
    LatencyStats,
    Snapshot,
    SocketStats,
    WatchStats,
    WorkerStats,
)

__all__ = ["WorkerCollector"]


class WorkerCollector(StatsCollector):
    """Collects the statistics of all workers. `join` has to be called first."""

    _member: Member

    def join(self, member: Member) -> None:
        """Collect from other workers, too."""
        self._member = member

    # What this worker publishes

    def write_gauges(self) -> None:
        """Write the numbers of this worker to the board."""
        board, number = self._member.board, self._member.number
        watchers = self._watchers
        for cell, value in (
            (Cell.OPEN, len(self._connections)),
            (Cell.HANDSHAKES, len(self._handshakes)),
            (Cell.INPUT_HELD, self._input_held()),
            (Cell.EVENTS_WRITTEN, watchers.written),
            (Cell.EVENTS_SENT, watchers.sent),
            (Cell.EVENTS_SKIPPED, watchers.skipped),
        ):
            board.write(number, cell, value)

    def report(self, asking: ConnectionInfo | None = None) -> dict[str, Any]:
        """Return what takes more than numbers, of this worker."""
        sockets = [
            (self._member.unique_number(one.number), *one[1:])
            for one in super().sockets(asking)
            if one.state != "listening"
        ]
        return {
            "sockets": sockets,
            "latencies": {name: one.parts() for name, one in self._latencies.histograms.items()},
            "hot": self._hot_keys.estimates(),
            "prefixes": self._prefixes.counts(),
        }

    def reset_mine(self) -> None:
        """Start from zero, in this worker."""
        super().reset()
        self._member.reset()

    # Of all of them

    def _reports(self, asking: ConnectionInfo | None = None) -> list[dict[str, Any]]:
        member = self._member
        member.ask(Topic.REPORT)
        found = [member.board.read_report(one) for one in member.board.others(member.number)]
        return [self.report(asking), *(one for one in found if one is not None)]

    def general(self) -> GeneralStats:
        """Return the general statistics of the server; see `StatsCollector`."""
        member = self._member
        board = member.board
        member.publish()
        member.ask(Topic.COUNTS)
        self._table.measure()  # which changes nothing but figures
        return replace(
            super().general(),
            pid=os.getppid(),
            user_seconds=board.sum(Cell.USER) / 1e9,
            system_seconds=board.sum(Cell.SYSTEM) / 1e9,
            connections=board.sum(Cell.OPEN),
            handshakes=board.sum(Cell.HANDSHAKES),
            input_held=board.sum(Cell.INPUT_HELD),
            counters=CounterValues.read(board.total()),
            threads=board.workers,
        )

    def _watch(self) -> WatchStats:
        board = self._member.board
        return WatchStats(
            watchers=board.sum(Cell.WATCHERS),
            written=board.sum(Cell.EVENTS_WRITTEN),
            sent=board.sum(Cell.EVENTS_SENT),
            skipped=board.sum(Cell.EVENTS_SKIPPED),
        )

    def sockets(self, asking: ConnectionInfo | None) -> list[SocketStats]:
        """Return all sockets of the server; see `StatsCollector`."""
        mine = [one for one in super().sockets(asking) if one.state == "listening"]
        others = [
            SocketStats(*one) for report in self._reports(asking) for one in report["sockets"]
        ]
        return mine + sorted(others, key=lambda one: one.number)

    def _histograms(self, reports: list[dict[str, Any]]) -> dict[str, LatencyHistogram]:
        merged = {name: LatencyHistogram() for name in self._latencies.histograms}
        for report in reports:
            for name, parts in report["latencies"].items():
                merged[name].merge(*parts)
        return merged

    def latency(self) -> LatencyStats:
        """Return the sampled latencies of the server."""
        return self._summarized(self._histograms(self._reports()))

    def snapshot(self, troubles: Iterable[str] = ()) -> Snapshot:
        """Return all figures of the server that take no walk; see `StatsCollector`."""
        merged = self._histograms(self._reports())
        return replace(
            super().snapshot(tuple(troubles)),
            commands={name: Durations.read(one) for name, one in merged.items()},
        )

    def hot_keys(self) -> HotKeysStats:
        """Return the keys most often asked for."""
        found = [report["hot"] for report in self._reports()]
        return self._hot_keys.summarize(merge_estimates(found))

    def prefixes(self) -> PrefixStats:
        """Return the counts by key prefix."""
        merged = PrefixStats()
        for report in self._reports():
            merged.merge(report["prefixes"])
        return merged

    def workers(self) -> tuple[int, list[WorkerStats]]:
        """Return the number of this worker, and what is known of each."""
        member = self._member
        board = member.board
        member.publish()
        member.ask(Topic.COUNTS)
        return member.number, [self._worker(one) for one in range(board.workers)]

    def _worker(self, number: int) -> WorkerStats:
        board = self._member.board
        counters = board.total(number)
        return WorkerStats(
            pid=board.read(number, Cell.PID),
            connections=board.read(number, Cell.OPEN),
            accepted=counters.total_connections,
            operations=counters.operations,
            user_seconds=board.read(number, Cell.USER) / 1e9,
            system_seconds=board.read(number, Cell.SYSTEM) / 1e9,
        )

    def reset(self) -> None:
        """Start from zero, in all workers."""
        board = self._member.board
        self._member.tell(Control.RESETS, board.control(Control.RESETS) + 1)
