"""Administrative commands of the text protocol, and an interface for other protocols."""

from collections.abc import Callable
from typing import Any

from memlite.protocol import replies
from memlite.server.admin.control_commands import ControlCommands
from memlite.server.admin.incremental_reply import Scan
from memlite.server.admin.request import AdminRequest, Command
from memlite.server.admin.stats_commands import StatsCommands
from memlite.server.admin.stream_commands import StreamCommands
from memlite.server.admin.tuning_commands import TUNING_COMMANDS
from memlite.server.interfaces import Client
from memlite.telemetry.memcached_stats import Pairs

__all__ = ["Admin"]


class Admin:
    """Carries out commands that do not concern keys.

    The text protocol calls `execute`. The binary protocol, whose replies have a different form,
    calls the methods after it.

    Args:
        control: carries out commands that change the server.
        stats: carries out ``stats``.
        streams: carries out ``lru_crawler`` and ``watch``.
        authenticates: whether clients of the binary protocol must authenticate (``-S``).

    Attributes:
        commands: all commands of the text protocol by their first word.
        authenticates: as above.
        may_dump: whether clients may see keys, or parts of them (not with ``-X``).
        flushes: whether clients may flush (not with ``-F``).
    """

    def __init__(
        self,
        *,
        control: ControlCommands,
        stats: StatsCommands,
        streams: StreamCommands,
        authenticates: bool,
    ) -> None:
        self._control = control
        self._stats = stats
        self.commands: dict[bytes, Command] = {
            **control.commands,
            **stats.commands,
            **streams.commands,
            **TUNING_COMMANDS,
        }
        self.authenticates = authenticates
        self.may_dump = stats.may_dump
        self.flushes = control.may_flush

    def execute(self, words: list[bytes], noreply: bool, client: Client) -> bytes:
        """Carry out a command of the text protocol.

        Args:
            words: the command and its arguments.
            noreply: whether the last word is ``noreply``.
            client: the connection it arrived on.

        Returns:
            The reply; empty if there is none, or if it will follow.
        """
        command = self.commands.get(words[0])
        return replies.ERROR if command is None else command(AdminRequest(words, noreply, client))

    def flush(self, exptime: int) -> None:
        """Make all items absent: now, or at `exptime` if that is positive."""
        self._control.flush(exptime)

    def set_verbosity(self, level: int) -> None:
        """Set the log level."""
        self._control.set_verbosity(level)

    def group(self, name: bytes, client: Client) -> Pairs | None:
        """Return a group of statistics; see `StatsCommands.group`."""
        return self._stats.group(name, client)

    def scan(self, name: bytes) -> Scan[Pairs] | None:
        """Return a group of statistics that scans every item; see `StatsCommands.scan`."""
        return self._stats.scan(name)

    def answer_scan(
        self, scan: Scan[Any], encode: Callable[[Any], bytes], client: Client
    ) -> bytes | None:
        """Return the reply computed by a scan; see `StatsCommands.answer_scan`."""
        return self._stats.answer_scan(scan, encode, client)

    def reset(self) -> None:
        """Reset all statistics."""
        self._stats.reset()

    def detail(self, what: bytes) -> bytes | None:
        """Start, stop or return the counts by prefix; see `StatsCommands.detail`."""
        return self._stats.detail(what)
