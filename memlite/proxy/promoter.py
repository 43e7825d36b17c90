"""Maintenance of the list of hot keys: automatic promotion and demotion, and cleanup."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from memlite.client import ConnectionLostError, LoginRefusedError, Shape, connect
from memlite.client.replies import Line, Reply, ReplyError
from memlite.cluster.hot_keys import MAX_HOT_KEYS, HotKey, demote, promote, remove
from memlite.cluster.membership.document import Document
from memlite.cluster.membership.encoding import DocumentError
from memlite.cluster.membership.member import change_topology
from memlite.cluster.membership.store import Store, StoreUnavailableError
from memlite.cluster.topology import Topology
from memlite.core.errors import ConfigError
from memlite.core.logs import failure
from memlite.proxy.cluster import Cluster
from memlite.proxy.loads import Load, hot, loads_of, worth_it
from memlite.proxy.node import Access, Node
from memlite.telemetry import memcached_stats

if TYPE_CHECKING:
    from memlite.telemetry.hotkeys import HotKeys

__all__ = ["Promoter"]

_log = logging.getLogger("memlite")

_INTERVAL: Final = 5.0
_LEAST_AGE: Final = 120.0
"""Minimum seconds for which a key stays promoted: old requests dominate its load that long."""
_REQUEST: Final = b"stats hotkeys\r\n"


class Promoter:
    """Maintains the list of hot keys.

    Args:
        cluster: the nodes.
        access: how nodes are reached.
        store: where the list is kept; None if only this proxy has a list.
        percent: the share of an average node's requests at which a key is promoted; None for no
            automatic promotion.
        sampled: the keys of requests sampled by the proxy, for nodes that do not report any.
    """

    def __init__(
        self,
        cluster: Cluster,
        access: Access,
        store: Store | None,
        percent: float | None,
        sampled: "HotKeys",
    ) -> None:
        self._cluster = cluster
        self._access = access
        self._store = store
        self._percent = percent
        self._sampled = sampled
        self._since: dict[bytes, float] = {}  # when promoted keys were first seen in the list
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start. Needs a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    def stop(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL)
            # The follower reports problems with the store.
            with suppress(StoreUnavailableError, DocumentError):
                await self._step()

    async def _step(self) -> None:
        over = self._cluster.hot.over
        if over and self._store is not None:
            await self._change_document((), (), over)
        topology = self._cluster.topology
        if self._percent is None or topology is None or not _possible(topology):
            return
        if self._cluster.refusal is not None:
            return
        present = [one for one in topology.hot_keys if not one.demoted]
        loads = await self._loads({one.key for one in present})
        new, old = self._decide(present, loads, len(topology.nodes))
        if not new and not old:
            return
        if self._store is not None:
            await self._change_document(new, old, ())
        elif topology is self._cluster.topology:
            self._change_own(new, old)

    async def _loads(self, promoted: set[bytes]) -> dict[bytes, Load]:
        nodes = self._cluster.nodes
        reports = await asyncio.gather(*(self._report(node) for node in nodes if not node.down))
        known = [report for report in reports if report is not None]
        if known and len(known) == len(reports):
            return loads_of(known, len(nodes), promoted)
        own = memcached_stats.hot_keys(self._sampled.snapshot())
        return loads_of([{name: str(value) for name, value in own}], len(nodes))

    async def _report(self, node: Node) -> Mapping[str, str] | None:
        """Return a node's statistics of hot keys; None if it has none."""
        access = self._access
        try:
            connection = await connect(
                node.address, tls=access.tls, login=access.login, timeout=access.deadline
            )
            async with connection:
                rows = _rows(await connection.request(_REQUEST, Shape.ROWS))
        except (OSError, TimeoutError, ConnectionLostError, LoginRefusedError, ReplyError):
            return None
        return rows if "hotkeys:sample_interval" in rows else None

    def _decide(
        self, present: Sequence[HotKey], loads: Mapping[bytes, Load], nodes: int
    ) -> tuple[list[bytes], list[bytes]]:
        """Return the keys to promote and the keys to demote."""
        percent, now = self._percent or 0.0, time.monotonic()
        self._since = {one.key: self._since.get(one.key, now) for one in present}
        old = []
        for one in present:
            load = loads.get(one.key, Load())
            cold = load.share < percent / 2 or not worth_it(load, nodes, promoted=True)
            if one.automatic and cold and now - self._since[one.key] >= _LEAST_AGE:
                old.append(one.key)
        new = [key for key in hot(loads, nodes, percent) if key not in self._since]
        return new[: max(MAX_HOT_KEYS // 2 - len(present), 0)], old

    async def _change_document(
        self, new: Sequence[bytes], old: Sequence[bytes], over: frozenset[HotKey] | tuple[()]
    ) -> None:
        def change(document: Document) -> Document:
            now = time.time()
            listed = remove(document.hot_keys, over)
            # No copies are made while keys move; the proxy may not know of the move yet.
            wanted = new if document.move is None else ()
            listed = _changed(listed, wanted, old, document.next_epoch(now))
            return document.with_hot_keys(listed, now)

        if self._store is not None:
            await change_topology(self._store, change)

    def _change_own(self, new: Sequence[bytes], old: Sequence[bytes]) -> None:
        topology = self._cluster.topology
        if topology is not None:
            epoch = max((one.epoch for one in topology.hot_keys), default=0) + 1
            listed = _changed(topology.hot_keys, new, old, epoch)
            kept = tuple(one for one in listed if not one.demoted)
            self._cluster.change(replace(topology, hot_keys=kept))


def _possible(topology: Topology) -> bool:
    """Return whether copies help and are compatible with a topology, which may have changed."""
    return len(topology.nodes) > 1 and topology.gutter is None and topology.read == "any"


def _changed(
    listed: tuple[HotKey, ...], new: Sequence[bytes], old: Sequence[bytes], epoch: int
) -> tuple[HotKey, ...]:
    automatic = {one.key for one in listed if one.automatic}
    listed = demote(listed, automatic.intersection(old), epoch)
    try:
        return promote(listed, new, epoch, automatic=True)
    except ConfigError as error:
        _log.warning("cannot promote hot keys: %s", error, extra=failure("promotion_failed"))
        return listed


def _rows(reply: Reply) -> dict[str, str]:
    rows = {}
    for part in reply.parts:
        if isinstance(part, Line):
            words = part.text.decode("ascii", "backslashreplace").split(" ", 2)
            if len(words) == 3 and words[0] == "STAT":
                rows[words[1]] = words[2]
    return rows
