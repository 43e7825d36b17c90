"""Administrative commands of one worker, which act on all."""

import logging
import os
import signal
from functools import cached_property
from typing import TYPE_CHECKING, cast

from memlite.core.errors import ConfigError
from memlite.server.administration import Administration
from memlite.server.workers.board import Cell, Control
from memlite.server.workers.member import Member
from memlite.server.workers.statistics import WorkerCollector
from memlite.server.workers.watchers import WorkerWatchers

if TYPE_CHECKING:
    from memlite.engine.evicted import Evicted
    from memlite.engine.shared import SharedEngine, SharedItems
    from memlite.server.admin.stats_collector import StatsCollector
    from memlite.server.admin.watchers import Watchers

__all__ = ["WorkerAdministration"]

_log = logging.getLogger("memlite")


class WorkerAdministration(Administration):
    """Carries out administrative commands in all workers. Call `join` first.

    A control holds one more than its value; 0 means the value in the settings.
    """

    _member: Member
    _shift = 0

    def join(self, member: Member) -> None:
        """Act as one server with the other workers."""
        self._member = member
        self._request_stop = _stop_all
        member.actions = {
            Control.VERBOSITY: lambda value: self._instrumentation.set_verbosity(value - 1),
            Control.CRAWLER: self._enable,
            Control.PREFIXES: self._count_prefixes,
            Control.SHIFT: self._move_clock,
            Control.RESETS: lambda _: self.stats.reset_mine(),
            Control.RELOADS: self._reload,
        }
        member.changed = self._follow_watchers
        member.gauges = self._write_gauges
        member.report = lambda: self.stats.report()
        member.receive = lambda message: self.watchers.receive(message)

    def _write_gauges(self) -> None:
        if self._backend is None:
            cast("SharedEngine", self._engine).count_evicted()
        self.stats.write_gauges()

    # Commands

    def set_verbosity(self, level: int) -> None:
        """Set the log level of all workers."""
        self._member.set_control(Control.VERBOSITY, level + 1)

    def advance_clock(self, seconds: int) -> None:
        """Move the clocks of all workers."""
        shift = self._member.board.control(Control.SHIFT)
        self._member.set_control(Control.SHIFT, shift + seconds)

    def refresh_certificates(self) -> None:
        """Reload the certificates in all workers; see `Administration`."""
        super().refresh_certificates()  # its error is reported to the client
        board = self._member.board
        self._member.set_control(Control.RELOADS, board.control(Control.RELOADS) + 1)

    def on_enable(self, enabled: bool) -> None:
        """Turn the crawler on or off in all workers."""
        self._member.set_control(Control.CRAWLER, enabled + 1)

    def announce_dump(self, running: bool) -> bool:
        """Announce the start or end of a dump; return False if another worker is running one."""
        board, number = self._member.board, self._member.number
        board.write(number, Cell.DUMPING, running)
        if running and board.sum(Cell.DUMPING) > 1:
            board.write(number, Cell.DUMPING, False)
            return False
        return True

    def on_detail(self, counted: bool) -> None:
        """Turn counting by prefix on or off in all workers."""
        self._member.set_control(Control.PREFIXES, counted + 1)

    # Actions that each worker then takes

    def _enable(self, value: int) -> None:
        self.dumps.enabled = bool(value - 1)

    def _count_prefixes(self, value: int) -> None:
        self._engine.observe(self._prefixes if value - 1 else None, self._engine.observer)

    def _move_clock(self, value: int) -> None:
        self._upkeep.advance_clock(value - self._shift)
        self._shift = value

    def _reload(self, _: int) -> None:
        try:
            self._refresh_certificates()
        except ConfigError as error:
            _log.error("certificates not reloaded: %s", error)

    def _follow_watchers(self) -> None:
        if "watchers" in self.__dict__ or self._member.board.sum(Cell.WATCHED):
            self.watchers.update()

    # Parts that take the other workers into account

    @cached_property
    def stats(self) -> WorkerCollector:
        """Collects statistics."""
        collector = cast("WorkerCollector", super().stats)
        collector.join(self._member)
        return collector

    @cached_property
    def watchers(self) -> WorkerWatchers:
        """Sends events to watchers."""
        watchers = cast("WorkerWatchers", super().watchers)
        watchers.join(self._member, self._evicted())
        return watchers

    def _evicted(self) -> "Evicted | None":
        """Return the collector of items evicted from a shared table."""
        if self._backend is not None:
            return None
        from memlite.engine.evicted import Evicted

        return Evicted(cast("SharedItems", self._table).mapping)

    def _collector_type(self) -> "type[StatsCollector]":
        return WorkerCollector

    def _watchers_type(self) -> "type[Watchers]":
        return WorkerWatchers

    def _acting(self) -> int:
        return self._member.unique_number(super()._acting())


def _stop_all(*, graceful: bool = False) -> None:
    """Ask the supervisor to stop all workers."""
    os.kill(os.getppid(), signal.SIGUSR1 if graceful else signal.SIGTERM)
