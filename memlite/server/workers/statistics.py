"""The statistics of all workers combined into those of one server."""

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from memlite.engine.prefixes import PrefixStats
from memlite.server.admin.stats_collector import StatsCollector
from memlite.server.interfaces import ConnectionInfo
from memlite.server.workers.board import Cell, Control, Topic
from memlite.server.workers.member import Member
from memlite.telemetry.counters import LatencyHistogram
from memlite.telemetry.hotkeys import merge_estimates
from memlite.telemetry.snapshot import (
    BackendStats,
    CounterValues,
    Durations,
    Exemplar,
    GeneralStats,
    HotKeysStats,
    LatencyStats,
    MemoryStats,
    SettingsStats,
    Snapshot,
    SocketStats,
    UdpStats,
    WatchStats,
    WorkerStats,
)
from memlite.telemetry.spans import SpanName

if TYPE_CHECKING:
    from memlite.telemetry.slow import SlowStats  # for servers with --slow-log

__all__ = ["WorkerCollector"]

_SHARED: Final = ("listening", "datagrams")
"""States of the sockets that all workers share."""


class WorkerCollector(StatsCollector):
    """Collects the statistics of all workers. Call `join` first."""

    _member: Member
    _slow_before: int

    def join(self, member: Member) -> None:
        """Collect from other workers, too."""
        self._member = member
        self._slow_before = member.board.read(member.number, Cell.SLOW)

    # Published by this worker

    def write_gauges(self) -> None:
        """Write the numbers of this worker to the board."""
        board, number = self._member.board, self._member.number
        watchers = self._watchers
        for cell, value in (
            (Cell.OPEN, len(self._connections)),
            (Cell.HANDSHAKES, len(self._handshakes)),
            (Cell.INPUT_HELD, self._input_held()),
            (Cell.DATAGRAMS, sum(service.under_way for service in self._udp)),
            (Cell.ITEMS, len(self._table)),
            (Cell.BYTES, self._table.used),
            (Cell.SLOW, self._slow_before + (0 if self._slow is None else self._slow.count)),
            (Cell.EVENTS_WRITTEN, watchers.written),
            (Cell.EVENTS_SENT, watchers.sent),
            (Cell.EVENTS_SKIPPED, watchers.skipped),
        ):
            board.write(number, cell, value)

    def report(self, asking: ConnectionInfo | None = None) -> dict[str, Any]:
        """Return the statistics of this worker that are not single numbers."""
        sockets = [
            (self._member.unique_number(one.number), *one[1:])
            for one in super().sockets(asking)
            if one.state not in _SHARED
        ]
        return {
            "sockets": sockets,
            "datagrams": [service.last_command for service in self._udp],
            "latencies": {name: one.parts() for name, one in self._latencies.histograms.items()},
            "exemplars": {
                name: {place: (tuple(one.span), *one[1:]) for place, one in of_class.items()}
                for name, of_class in self._latencies.exemplars.items()
            },
            "storage": self._figures(),
            "operations": {name: one.parts() for name, one in self._operations.histograms.items()},
            "hot": self._hot_keys.estimates(),
            "slow": []
            if self._slow is None
            else [tuple(one) for one in self._slow.stats().commands],
            "prefixes": self._prefixes.counts(),
        }

    def reset_mine(self) -> None:
        """Reset the statistics of this worker."""
        super().reset()
        self._slow_before = 0
        self._member.reset()

    # Of all workers

    def _reports(self, asking: ConnectionInfo | None = None) -> list[dict[str, Any]]:
        member = self._member
        member.ask(Topic.REPORT)
        others = [one for one in range(member.board.workers) if one != member.number]
        found = [member.board.read_report(one) for one in others]
        return [self.report(asking), *(one for one in found if one is not None)]

    def general(self) -> GeneralStats:
        """Return the general statistics of the server; see `StatsCollector`."""
        member = self._member
        board = member.board
        member.publish()
        member.ask(Topic.COUNTS)
        self._table.measure()  # updates figures only
        general = super().general()
        if self._figures():  # each worker has its own items
            general = replace(
                general,
                items=board.sum(Cell.ITEMS),
                bytes=board.sum(Cell.BYTES),
                bytes_limit=general.bytes_limit * board.workers,
            )
        return replace(
            general,
            pid=os.getppid(),
            user_seconds=board.sum(Cell.USER) / 1e9,
            system_seconds=board.sum(Cell.SYSTEM) / 1e9,
            connections=board.sum(Cell.OPEN),
            handshakes=board.sum(Cell.HANDSHAKES),
            input_held=board.sum(Cell.INPUT_HELD),
            counters=CounterValues.read(board.total()),
            threads=board.workers,
            crawler_running=general.crawler_running or board.sum(Cell.DUMPING) > 0,
        )

    def settings(self) -> SettingsStats:
        """Return the settings of the server; another worker may have changed the limit."""
        self._table.measure()
        return super().settings()

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
        reports = self._reports(asking)
        now = int(self._clock.now())
        last = map(max, zip(*(report["datagrams"] for report in reports), strict=True))
        shared = [
            one._replace(idle=now - next(last)) if one.state == "datagrams" else one
            for one in super().sockets(asking)
            if one.state in _SHARED
        ]
        others = [SocketStats(*one) for report in reports for one in report["sockets"]]
        return shared + sorted(others, key=lambda one: one.number)

    def udp(self) -> UdpStats:
        """Return the statistics of requests over UDP to the server; see `StatsCollector`."""
        member = self._member
        member.publish()
        member.ask(Topic.COUNTS)
        total = member.board.total()
        return UdpStats(
            under_way=member.board.sum(Cell.DATAGRAMS),
            refused=total.udp_refused,
            dropped=total.udp_dropped,
        )

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
        """Return all figures that need no walk over the items; see `StatsCollector`."""
        reports = self._reports()
        exemplars = _exemplars(reports)
        return replace(
            super().snapshot(tuple(troubles)),
            commands={
                name: Durations.read(one, exemplars.get(name))
                for name, one in self._histograms(reports).items()
            },
            operations={name: Durations.read(one) for name, one in _operations(reports).items()},
            slow_commands=None if self._slow is None else self._member.board.sum(Cell.SLOW),
        )

    def _figures(self) -> dict[str, int | float | str]:
        """Return the figures of this worker's store backend; empty without a backend."""
        storage = super().storage()
        return dict(storage.figures) if isinstance(storage, BackendStats) else {}

    def storage(self) -> MemoryStats | BackendStats:
        """Return the store's statistics; see `StatsCollector`."""
        storage = super().storage()
        if not isinstance(storage, BackendStats):
            return storage
        figures = [report["storage"] for report in self._reports()]
        return BackendStats(
            storage.url, self._member.board.total().storage_errors, _of_all(figures)
        )

    def slow(self) -> "SlowStats | None":
        """Return the last slow commands of the server, and their number; see `StatsCollector`."""
        if self._slow is None:
            return None
        self._member.publish()
        found = [one for report in self._reports() for one in report["slow"]]
        return self._slow.merged(found, self._member.board.sum(Cell.SLOW))

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
        """Return the number of this worker, and the statistics of each worker."""
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
        """Reset the statistics of all workers."""
        board = self._member.board
        self._member.set_control(Control.RESETS, board.control(Control.RESETS) + 1)


_GREATEST: Final = frozenset(
    (
        "epoch", "epoch_age", "invalidations", "near_ttl", "servers", "servers_tracked",
        "servers_unavailable", "state", "times_unavailable",
    )
)  # fmt: skip
"""Figures of the store that all workers share. They are merged by maximum: "unavailable" wins."""


def _of_all(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the figures of all workers: the sum or, for figures in `_GREATEST`, the maximum."""
    merged = dict(figures[0])
    for one in figures[1:]:
        for name, value in one.items():
            if name in _GREATEST:
                merged[name] = max(merged.get(name, value), value)
            elif not isinstance(value, str):
                merged[name] = merged.get(name, 0) + value
    return merged


def _exemplars(reports: list[dict[str, Any]]) -> dict[str, dict[int, Exemplar]]:
    """Return the latest exemplars of each class among all workers."""
    merged: dict[str, dict[int, Exemplar]] = {}
    for report in reports:
        for name, of_class in report["exemplars"].items():
            kept = merged.setdefault(name, {})
            for place, (span, nanoseconds, time) in of_class.items():
                if place not in kept or kept[place].time < time:
                    kept[place] = Exemplar(SpanName(*span), nanoseconds, time)
    return merged


def _operations(reports: list[dict[str, Any]]) -> dict[tuple[str, str], LatencyHistogram]:
    merged: dict[tuple[str, str], LatencyHistogram] = {}
    for report in reports:
        for name, parts in report["operations"].items():
            merged.setdefault(name, LatencyHistogram()).merge(*parts)
    return merged
