"""Hot keys: they have copies on all nodes, which are read once every proxy is known to hold them.

See docs/decisions/0042-every-writer-knows-a-hot-key-before-it-is-spread.md for why nothing stale
is read.
"""

import logging
import time
from collections.abc import Callable, Sequence

from memlite.cluster.hot_keys import HotKey
from memlite.cluster.membership.lease import LEASE, MARGIN
from memlite.core.uris import uri_encoded
from memlite.protocol.meta import encode_key
from memlite.proxy.answers import Answer
from memlite.proxy.changes import Change, Changes
from memlite.proxy.node import Node, Receiver
from memlite.proxy.replica_requests import Key
from memlite.proxy.replicas import FlushTwice, ReplicaSet
from memlite.proxy.resend import Target

__all__ = ["HotSet", "Promotions"]

_log = logging.getLogger("memlite")


class HotSet(ReplicaSet):
    """The nodes that have a hot key; which of them are read changes over time.

    Args:
        name: the key.
        nodes: the nodes that have copies anyway, the primary first.
        changes: the changes in progress.
        write: which nodes replies to changes wait for; see `Change`.
        find: see `ReplicaSet`.
    """

    def __init__(
        self,
        name: bytes,
        nodes: Sequence[Node],
        changes: Changes,
        write: str,
        find: Callable[[bytes], Target] | None = None,
    ) -> None:
        super().__init__(nodes[0], nodes[1:], changes, write, spreads=True, find=find)
        self._name = name
        odd = any(byte <= 32 or byte == 127 for byte in name)
        self._key = Key(encode_key(name), b" b") if odd else Key(name, b"")

    def place(
        self, primary: Node, replicas: Sequence[Node], readers: Sequence[Node], write: str
    ) -> None:
        """Send further requests to other nodes.

        Args:
            primary: the node that decides.
            replicas: the nodes whose copies are held while the key changes.
            readers: the nodes that answer reads.
            write: which nodes replies to changes wait for.
        """
        self.primary, self._replicas, self._readers = primary, replicas, readers
        self._write = write

    @property
    def readers(self) -> int:
        """How many nodes answer reads."""
        return len(self._readers)

    def empty_all(self) -> None:
        """Remove all copies that can be removed now."""
        for node in self._replicas:
            if not node.down:
                self.empty([node], Answer(lambda _reply, _failed: None, reads=True))

    def empty(self, replicas: Sequence[Node], receiver: Receiver) -> None:
        """Remove the copies on some nodes, whatever their values, like a change that leaves the
        item as it is.
        """  # noqa: D205 - one sentence
        changes = self._changes
        if changes.wait([self._name], lambda: self.empty(replicas, receiver), receiver):
            return
        request = b"mg %b%b\r\n" % self._key
        change = Change(changes, self._key, request, receiver, self.primary, replicas, "all")
        change.start(self._name)


class _Promotion:
    """The state of a hot key.

    Args:
        entry: its entry in the topology.
        nodes: all nodes.
        base: the nodes that have it anyway, the primary first.
        changes: the changes in progress.
        write: which nodes replies to changes wait for.
        now: the time.
        find: see `ReplicaSet`.

    Attributes:
        entry: as above.
        set: the target of its requests.
        demoted: when it was demoted; None while it is promoted.
        over: whether no proxy reads copies any longer.
    """

    def __init__(
        self,
        entry: HotKey,
        nodes: Sequence[Node],
        base: Sequence[Node],
        changes: Changes,
        write: str,
        now: float,
        find: Callable[[bytes], Target] | None = None,
    ) -> None:
        self.entry = entry
        self.set = HotSet(entry.key, base, changes, write, find)
        self.demoted: float | None = None
        self.over = False
        self._primary = base[0]
        self._since: dict[Node, float] = {}  # since when every change is known to hold the copy
        self._emptied: set[Node] = set()  # nodes without copies older than that
        self._emptying = False
        self._former: dict[Node, float] = {}  # recent primaries, and when each was replaced
        self._known = False
        self.update(entry, nodes, base, write, now)

    @property
    def state(self) -> str:
        """``spread``, ``waiting`` before that, or ``demoted``."""
        if self.demoted is not None:
            return "demoted"
        return "spread" if self._emptied or not self._since else "waiting"

    def update(
        self,
        entry: HotKey,
        nodes: Sequence[Node],
        base: Sequence[Node],
        write: str,
        now: float,
    ) -> None:
        """Note the topology's current entry."""
        moved = base[0] is not self._primary
        if moved or (entry.epoch, entry.demoted) != (self.entry.epoch, self.entry.demoted):
            self._since.clear()
            self._emptied.clear()
        self.over = self.over and entry.demoted
        if not entry.demoted:
            self.demoted = None
        elif self.demoted is None:
            self.demoted = now
        if moved and self._known:
            self._former[self._primary] = now
        self.entry, self._known = entry, True
        self._nodes, self._base, self._primary, self._write = nodes, base, base[0], write
        self._since = {node: self._since.get(node, now) for node in nodes if node not in base}
        self._emptied &= self._since.keys()
        self._former = {
            node: until
            for node, until in self._former.items()
            if node in nodes and node is not self._primary
        }
        self._place()

    def forget(self) -> None:
        """Discard the assumptions about what other proxies know."""
        self._known = False
        self._since.clear()
        self._emptied.clear()
        self._former.clear()
        self._place()

    def _place(self) -> None:
        base = self._base
        held = [
            node
            for node in self._nodes
            if node is not self._primary and (node in base or node not in self._former)
        ]
        readers = [*base, *(node for node in self._nodes if node in self._emptied)]
        self.set.place(self._primary, held, readers, self._write)

    def step(self, now: float, linger: float, settling: float) -> None:
        """Do what is due."""
        if self.demoted is not None:
            self.over = now - self.demoted >= linger
            return
        over = [node for node, until in self._former.items() if now - until >= linger]
        if over:
            for node in over:
                del self._former[node]
            self._place()
        if not self._emptying:
            due = {
                node: since
                for node, since in self._since.items()
                if node not in self._emptied and now - since >= settling and not node.down
            }
            if due:
                self._empty(due)

    def _empty(self, due: dict[Node, float]) -> None:
        """Empty some nodes, and read from them after that."""
        self._emptying = True

        def emptied(_reply: bytes, failed: bool) -> None:
            self._emptying = False
            if not failed:
                # Unless the wait for a node has started again meanwhile.
                self._emptied |= {
                    node for node, since in due.items() if self._since.get(node) == since
                }
                self._place()
                shown = uri_encoded(self.entry.key)
                _log.info("hot key %s is read from %d nodes", shown, self.set.readers)

        self.set.empty(list(due), Answer(emptied, reads=True))


class Promotions:
    """The hot keys of a proxy.

    Args:
        changes: the changes in progress.
        deadline: seconds within which a node must answer.
        forget: called with each key whose requests get another target.
        clock: returns seconds that never decrease, and that pass while the process is stopped.
        find: see `ReplicaSet`.
        valid: see `FlushTwice`.

    Attributes:
        flushing: the target of requests for all nodes while there are hot keys.
        linger: seconds after which all other proxies know of a change, or refuse to serve, and
            their reads in progress have ended. Until then, copies that may be read are held.
        settling: seconds after which their changes in progress have ended as well, as far as these
            need not outlast holds. No copy is read before.
    """

    def __init__(
        self,
        changes: Changes,
        deadline: float,
        forget: Callable[[bytes], None],
        clock: Callable[[], float] = time.monotonic,
        find: Callable[[bytes], Target] | None = None,
        valid: Callable[[Sequence[Node]], bool] | None = None,
    ) -> None:
        self._changes = changes
        self._forget = forget
        self._clock = clock
        self._find = find
        self._valid = valid
        self._promoted: dict[bytes, _Promotion] = {}
        self._listed: frozenset[HotKey] = frozenset()
        self._over: set[HotKey] = set()
        self._moving = False
        self.flushing = FlushTwice((), changes)
        # Requests may wait up to a deadline for a worker, and a little longer than that for a node.
        self.linger = LEASE + MARGIN + 3 * deadline
        self.settling = LEASE + deadline + changes.hold_seconds

    @property
    def active(self) -> bool:
        """Whether there are hot keys, including recently demoted ones."""
        return bool(self._promoted)

    @property
    def count(self) -> int:
        """The number of hot keys, including recently demoted ones."""
        return len(self._promoted)

    @property
    def over(self) -> frozenset[HotKey]:
        """Demoted keys that all other proxies know to be demoted."""
        return frozenset(self._over)

    def of(self, key: bytes) -> HotSet | None:
        """Return the target of requests for a hot key; None if it is not one."""
        found = self._promoted.get(key)
        return None if found is None else found.set

    def update(
        self,
        entries: Sequence[HotKey],
        nodes: Sequence[Node],
        order: Callable[[bytes], Sequence[int]],
        write: str,
        *,
        moving: bool = False,
    ) -> None:
        """Note the topology's hot keys.

        Args:
            entries: the hot keys.
            nodes: all nodes.
            order: returns the indexes of the nodes that have a key anyway, the primary first.
            write: which nodes replies to changes wait for; see `Change`.
            moving: whether keys are moving between nodes; none is promoted meanwhile. The list
                should be empty then: a mover waits for that before it begins.
        """
        now = self._clock()
        self._moving = moving
        if moving:
            entries = ()
        self.flushing = FlushTwice(nodes, self._changes, self._valid)
        self._listed = frozenset(entries)
        self._over &= self._listed
        listed = {entry.key: entry for entry in entries if entry not in self._over}
        for key, found in self._promoted.items():
            if key not in listed:
                listed[key] = HotKey(key, found.entry.epoch, demoted=True)
        for key, entry in listed.items():
            base = [nodes[index] for index in order(key)]
            promotion = self._promoted.get(key)
            if promotion is None or promotion.entry.demoted != entry.demoted:
                verb = "demoted" if entry.demoted else "promoted"
                _log.info("hot key %s is %s", uri_encoded(key), verb)
            if promotion is None:
                self._promoted[key] = _Promotion(
                    entry, nodes, base, self._changes, write, now, self._find
                )
                self._forget(key)
            else:
                promotion.update(entry, nodes, base, write, now)

    def suspend(self) -> None:
        """Discard the assumptions about what other proxies know."""
        for promotion in self._promoted.values():
            promotion.forget()

    def stats(self) -> list[tuple[str, object]]:
        """Return the names and values of statistics; none without hot keys."""
        lines: list[tuple[str, object]] = []
        for key, promotion in self._promoted.items():
            name = f"hot:{uri_encoded(key)}"
            lines.append((f"{name}:state", promotion.state))
            lines.append((f"{name}:nodes", promotion.set.readers))
        return [("proxy_hot_keys", len(self._promoted)), *lines] if lines else []

    def tick(self) -> None:
        """Do what is due; to be called every second."""
        if not self._promoted:
            return
        now = self._clock()
        for key, promotion in list(self._promoted.items()):
            before = promotion.over
            promotion.step(now, self.linger, self.settling)
            if promotion.over and not before and not self._moving:
                # Proxies no longer fill copies, and the remaining copies will not be held.
                promotion.set.empty_all()
            # Later requests must not overtake the ones in progress.
            if promotion.over and not self._changes.waits(key):
                del self._promoted[key]
                self._over.update({promotion.entry} & self._listed)
                self._forget(key)
