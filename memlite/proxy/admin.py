"""Commands that are not about keys: the proxy's version, verbosity and statistics."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from memlite.core.clock import Clock
from memlite.core.version import SERVER_VERSION
from memlite.protocol import replies
from memlite.protocol.numbers import unsigned
from memlite.proxy.cluster import Cluster
from memlite.proxy.discovery import Discovery
from memlite.proxy.node import Node
from memlite.proxy.stats_rows import times
from memlite.proxy.unread_replies import UnreadReplies
from memlite.server.admin.request import NO_SLOW_LOG, PIPELINED
from memlite.server.connections.register import Register
from memlite.telemetry.counters import Counters

if TYPE_CHECKING:
    from memlite.proxy.queue import RequestQueue
    from memlite.proxy.trace import Trace
    from memlite.server.admin.watchers import Watchers
    from memlite.server.interfaces import Client
    from memlite.telemetry.slow import SlowLog

__all__ = ["NOT_HERE", "ProxyAdmin"]

_U32: Final = 2**32
_MAX_VERBOSITY: Final = 3
_OF_NODES: Final = frozenset(
    b"cache_memlimit debugtime extstore lru lru_crawler misbehave refresh_certs shutdown"
    b" slabs".split()
)
NOT_HERE: Final = b"SERVER_ERROR not possible through a proxy; ask the nodes\r\n"


class ProxyAdmin:
    """Carries out commands that are not about keys, other than ``flush_all``.

    Args:
        cluster: the nodes.
        counters: the counters of the connections.
        register: the open connections.
        unread_replies: counts the replies held for clients that do not read them.
        clock: the clock.
        set_verbosity: sets the log level, 0 to 3.
        authenticates: whether clients must authenticate.
        queue: the queue that requests pass through; None if they go straight to the nodes.
        trace: the trace; None if there is none.
        slow: the slow log; None if there is none.
        watchers: sends events to clients.

    Attributes:
        discovery: tells clients about the nodes.
    """

    def __init__(
        self,
        cluster: Cluster,
        counters: Counters,
        register: Register,
        unread_replies: UnreadReplies,
        clock: Clock,
        set_verbosity: Callable[[int], None],
        *,
        authenticates: bool,
        queue: "RequestQueue | None" = None,
        trace: "Trace | None" = None,
        slow: "SlowLog | None" = None,
        watchers: "Watchers",
    ) -> None:
        self.authenticates = authenticates
        self._cluster = cluster
        self._queue = queue
        self._trace = trace
        self._slow = slow
        self._watchers = watchers
        self._counters = counters
        self._register = register
        self._unread_replies = unread_replies
        self._clock = clock
        self._set_verbosity = set_verbosity
        self.discovery = Discovery(cluster)

    def watch(self, words: Sequence[bytes], client: "Client") -> bytes:
        """Make a connection a watcher.

        Args:
            words: the arguments of ``watch``.
            client: the connection, which has no other request in progress.

        Returns:
            The reply; empty if the connection is a watcher now.
        """
        if client.pipelined:
            return PIPELINED % b"watch"
        return self._watchers.add(words, client)

    def execute(self, words: list[bytes]) -> bytes:
        """Carry out a command other than ``flush_all`` and ``watch``; return its reply."""
        match words[0]:
            case b"version":
                return b"VERSION %b\r\n" % SERVER_VERSION.encode()
            case b"verbosity":
                return self._verbosity(words)
            case b"config":
                return self.discovery.config(words)
            case b"stats" if len(words) == 1:
                return replies.stat_lines(self.stats())
            case b"stats" if words[1] == b"proxy":
                return replies.stat_lines(self.times())
            case b"stats" if words[1] == b"slow":
                return self._slow_requests()
            case b"stats" if words[1] == b"reset":
                self._counters.reset()
                self._cluster.reset()
                if self._queue is not None:
                    self._queue.reset()
                if self._slow is not None:
                    self._slow.clear()
                self._watchers.reset()
                return replies.RESET
            case word if word == b"stats" or word in _OF_NODES:
                return NOT_HERE
        return replies.ERROR

    def _verbosity(self, words: list[bytes]) -> bytes:
        level = unsigned(words[1], _U32) if len(words) > 1 else None
        if level is None:
            return replies.BAD_FORMAT
        self._set_verbosity(min(level, _MAX_VERBOSITY))
        return replies.OK

    def _slow_requests(self) -> bytes:
        if self._slow is None:
            return NO_SLOW_LOG
        # Imported lazily: most proxies are never asked.
        from memlite.telemetry import memcached_stats

        return replies.stat_lines(memcached_stats.slow(self._slow.stats(), shows_keys=True))

    def times(self) -> Iterator[tuple[str, object]]:
        """Yield the names and values of the group ``stats proxy``."""
        return times(self._cluster, self._queue, self._trace)

    def stats(self) -> Iterator[tuple[str, object]]:
        """Yield the names and values of the proxy's statistics."""
        cluster, counters, clock = self._cluster, self._counters, self._clock
        yield "pid", os.getpid()
        yield "uptime", int(clock.now() - clock.started)
        yield "time", int(clock.now())
        yield "version", SERVER_VERSION
        yield "curr_connections", len(self._register.connections)
        yield "rejected_connections", counters.rejected_connections
        yield "bytes_read", counters.bytes_read
        yield "bytes_written", counters.bytes_written
        yield "proxy_unread_bytes", self._unread_replies.size
        yield "proxy_unread_disconnects", self._unread_replies.disconnected
        yield "proxy_multigets", cluster.multigets
        yield "proxy_failed_requests", cluster.failures
        yield "proxy_failed_shards", cluster.failed_shards
        yield "proxy_nodes", len(cluster.nodes)
        yield "proxy_nodes_up", sum(node.state == "up" for node in cluster.nodes)
        hot = cluster.hot.stats()
        changes = cluster.replicated
        if cluster.replicas is not None or hot or changes.holds:
            yield "proxy_replica_reads", changes.replica_reads
            yield "proxy_fills", changes.fills
            yield "proxy_holds", changes.holds
            yield "proxy_holds_left", changes.left
        if cluster.moving is not None:
            yield "proxy_moving_phase", cluster.moving.phase.value
        yield "proxy_moving_requests", cluster.moving_requests
        yield from hot
        for node in cluster.nodes:
            yield from _stats_of(f"node:{node.name}", node)
        if cluster.gutter is not None:
            yield "proxy_gutter_requests", cluster.gutter.requests
            for node in cluster.gutter.nodes:
                yield from _stats_of(f"gutter:{node.name}", node)


def _stats_of(name: str, node: Node) -> Iterator[tuple[str, object]]:
    yield f"{name}:address", node.address
    yield f"{name}:state", node.state
    yield f"{name}:requests", node.requests
    yield f"{name}:pending", node.pending
    yield f"{name}:failed", node.failed
    yield f"{name}:refused", node.refused
    yield f"{name}:timeouts", node.timeouts
    yield f"{name}:connects", node.connects
    yield f"{name}:flushes", node.returning.flushes
    if node.error:
        yield f"{name}:error", node.error
