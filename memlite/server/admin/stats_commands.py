"""``stats`` and its groups."""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from memlite.engine.prefixes import PrefixStats
from memlite.memory import ItemTable
from memlite.protocol import replies
from memlite.protocol.numbers import unsigned
from memlite.server.admin.incremental_reply import IncrementalReply, Scan, finish
from memlite.server.admin.item_scans import ItemScans
from memlite.server.admin.request import NO_SLOW_LOG, AdminRequest, CommandTable
from memlite.server.admin.stats_collector import StatsCollector
from memlite.server.interfaces import Client, ObservableEngine
from memlite.telemetry import memcached_stats
from memlite.telemetry.memcached_stats import Pairs

__all__ = ["GROUPS", "SCANS", "StatsCommands"]

_U32: Final = 2**32
_CLASSES_END: Final = 64
_TOO_MANY_ITEMS: Final = b"SERVER_ERROR too many items for a datagram; ask over TCP\r\n"
# This many items are scanned without a pause; that takes a few milliseconds at most.
_SCANNED_AT_ONCE: Final = 1000

_Result = TypeVar("_Result")

GROUPS: Final[Mapping[bytes, Callable[[StatsCollector], Pairs]]] = {
    b"settings": lambda collector: memcached_stats.settings(collector.settings()),
    b"backend": lambda collector: memcached_stats.storage(collector.storage()),
    b"latency": lambda collector: memcached_stats.latency(collector.latency()),
    b"udp": lambda collector: memcached_stats.udp(collector.udp()),
    b"workers": lambda collector: memcached_stats.workers(*collector.workers()),
}
"""Groups that are available at once, by name, except the general group and ``conns``."""

SCANS: Final[Mapping[bytes, Callable[[ItemScans], Scan[Pairs]]]] = {
    b"items": lambda scans: _rendered(scans.items(), memcached_stats.items),
    b"slabs": lambda scans: _rendered(scans.slabs(), memcached_stats.slabs),
    b"sizes": lambda scans: _rendered(scans.sizes(), memcached_stats.sizes),
}
"""Groups that scan every item, by name."""


class StatsCommands:
    """Carries out ``stats``, and provides its groups to other protocols.

    Args:
        collector: collects the statistics.
        scans: collects statistics that scan every item.
        table: the items in memory.
        engine: counts by prefix while that is on.
        prefixes: the counts by prefix, even while they are off.
        may_dump: whether clients may see keys, or parts of them (not with ``-X``).
        on_detail: called when counting by prefix is turned on or off.

    Attributes:
        may_dump: as above.
    """

    def __init__(
        self,
        *,
        collector: StatsCollector,
        scans: ItemScans,
        table: ItemTable,
        engine: ObservableEngine,
        prefixes: PrefixStats,
        may_dump: bool,
        on_detail: Callable[[bool], None] = lambda counted: None,
    ) -> None:
        self.may_dump = may_dump
        self._collector = collector
        self._scans = scans
        self._table = table
        self._engine = engine
        self._prefixes = prefixes
        self._on_detail = on_detail

    @property
    def commands(self) -> CommandTable:
        """The command by its first word."""
        return {b"stats": self._stats}

    def group(self, name: bytes, client: Client) -> Pairs | None:
        """Return a group of statistics that is available at once.

        Args:
            name: the group's name; empty for the general statistics.
            client: the connection that requests it.

        Returns:
            None if there is no such group.
        """
        if not name:
            return memcached_stats.general(self._collector.general())
        if name == b"conns":
            return memcached_stats.sockets(self._collector.sockets(client))
        group = GROUPS.get(name)
        return None if group is None else group(self._collector)

    def scan(self, name: bytes) -> Scan[Pairs] | None:
        """Return a group of statistics that scans every item, None if there is no such group."""
        scan = SCANS.get(name)
        return None if scan is None else scan(self._scans)

    def answer_scan(
        self, scan: Scan[_Result], encode: Callable[[_Result], bytes], client: Client
    ) -> bytes | None:
        """Return the reply computed by a scan, at once or incrementally.

        Args:
            scan: computes the content of the reply.
            encode: converts the scan's result to the reply.
            client: the connection that receives the reply.

        Returns:
            The reply; empty if it will follow, None if there are too many items for a client that
            cannot wait.
        """
        if len(self._table) <= _SCANNED_AT_ONCE:
            return encode(finish(scan))
        if not client.can_wait:
            return None
        IncrementalReply(client, scan, encode)
        return b""

    def reset(self) -> None:
        """Reset all statistics."""
        self._collector.reset()

    def detail(self, what: bytes) -> bytes | None:
        """Start (``on``) or stop (``off``) counting by prefix, or return the counts (``dump``).

        Returns:
            The lines of the counts, empty unless they were requested; None if `what` is none of
            the three.
        """
        engine, prefixes = self._engine, self._prefixes
        if what == b"dump":
            return self._collector.prefixes().dump()
        if what not in (b"on", b"off"):
            return None
        engine.observe(prefixes if what == b"on" else None, engine.observer)
        self._on_detail(what == b"on")
        return b""

    def _stats(self, request: AdminRequest) -> bytes:
        words, client = request.words, request.client
        name = words[1] if len(words) > 1 else b""
        pairs = self.group(name, client)
        if pairs is not None:
            return replies.stat_lines(pairs)
        scan = self.scan(name)
        if scan is not None:
            return self._scan_reply(scan, replies.stat_lines, client)
        match words[1:]:
            case [b"reset", *_]:
                self.reset()
                return replies.RESET
            case [b"detail", *rest]:
                return self._detail(rest[0] if rest else b"")
            case [b"hotkeys", *_]:
                return self._hot_keys()
            case [b"slow", *_]:
                return self._slow()
            case [b"cachedump", *rest]:
                return self._cachedump(rest, client)
        return replies.ERROR

    def _scan_reply(
        self, scan: Scan[_Result], encode: Callable[[_Result], bytes], client: Client
    ) -> bytes:
        reply = self.answer_scan(scan, encode, client)
        return _TOO_MANY_ITEMS if reply is None else reply

    def _detail(self, what: bytes) -> bytes:
        if not self.may_dump:
            return b"CLIENT_ERROR stats detail not allowed\r\n"
        dump = self.detail(what)
        if dump is None:
            return b"CLIENT_ERROR usage: stats detail on|off|dump\r\n"
        return dump or replies.OK

    def _hot_keys(self) -> bytes:
        if not self.may_dump:
            return b"CLIENT_ERROR stats hotkeys not allowed\r\n"
        return replies.stat_lines(memcached_stats.hot_keys(self._collector.hot_keys()))

    def _slow(self) -> bytes:
        found = self._collector.slow()
        if found is None:
            return NO_SLOW_LOG
        return replies.stat_lines(memcached_stats.slow(found, shows_keys=self.may_dump))

    def _cachedump(self, arguments: list[bytes], client: Client) -> bytes:
        if not self.may_dump:
            return b"CLIENT_ERROR stats cachedump not allowed\r\n"
        if len(arguments) < 2:
            return b"CLIENT_ERROR bad command line\r\n"
        class_id = unsigned(arguments[0], _U32)
        limit = unsigned(arguments[1], _U32)
        if class_id is None or limit is None:
            return replies.BAD_FORMAT
        if class_id >= _CLASSES_END:
            return b"CLIENT_ERROR Illegal slab id\r\n"
        scan = self._scans.cachedump(class_id, limit)
        return self._scan_reply(scan, lambda lines: b"".join([*lines, replies.END]), client)


def _rendered(scan: Scan[_Result], render: Callable[[_Result], Pairs]) -> Scan[Pairs]:
    """Return a scan that renders the result of another scan."""
    return render((yield from scan))
