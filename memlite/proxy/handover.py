"""Keys that are reassigned to another node without their items, until all proxies know."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from memlite.cluster.membership.lease import ALL_INFORMED
from memlite.cluster.topology import Node as NodeAddress
from memlite.cluster.topology import Phase, Topology
from memlite.proxy.node import Receiver
from memlite.proxy.replica_requests import is_read
from memlite.server.scheduler import Scheduler

__all__ = ["Handover"]

_MAX_WAITING: Final = 16_384
_MAX_BYTES: Final = 64 * 1024 * 1024
_COARSENESS: Final = 0.01  # seconds by which a timer may be early
_FULL: Final = b"SERVER_ERROR too many changes wait for keys that get another node\r\n"


class _Target(Protocol):
    def send(self, request: bytes, receiver: Receiver) -> None: ...


class _Owners(NamedTuple):
    """The former nodes of keys, and until when another proxy may assume they still have them."""

    owners: Callable[[bytes], tuple[NodeAddress, ...]]
    until: float


class Handover:
    """Delays requests for keys whose node changes until the other proxies know of the change.

    Otherwise one proxy would read a key at its old node after another has changed it at the new
    one. A read is a miss, as it would be at a node that has just joined, unless a change of its key
    waits. Changes wait, and are then carried out in the order in which they came. With replicas,
    all requests wait: the key's new node has a copy. They wait longer: a proxy that cannot read the
    store continues for the rest of its lease, and may reach a node that has come back.

    Args:
        scheduler: ends the delay.
        seconds: the time after which all proxies that read the store know of a change; 0 if they
            need not agree.
        forget: forgets which nodes keys have, so that `concerns` is asked.
        delivered: called after replies were handed out.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        seconds: float,
        forget: Callable[[], None],
        delivered: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._seconds = seconds
        self._forget = forget
        self._delivered = delivered
        self._owners: list[_Owners] = []
        self._waiting: list[Callable[[], None]] = []
        self._keys: set[bytes] = set()  # the keys of waiting changes
        self._all_wait = False  # because a request for all keys waits
        self._copied = False  # there are copies, so that no read is a miss
        self._bytes = 0

    @property
    def active(self) -> bool:
        """Whether keys are being reassigned to other nodes."""
        return bool(self._owners)

    @property
    def anything_waits(self) -> bool:
        """Whether a request for all nodes must wait, too."""
        return bool(self._waiting)

    def begin(self, before: Topology, after: Topology) -> None:
        """Note that the nodes have changed.

        Args:
            before: the nodes until now.
            after: the nodes from now on. While keys move, all proxies know where they are.
        """
        move = before.move
        moved = move is not None and move.phase in (Phase.MOVE, Phase.SETTLE)
        nodes = move.nodes if moved and move is not None else before.nodes
        if not self._seconds or after.move is not None or nodes == after.nodes:
            return
        find = (before.next_router() if moved else before.router()).replicas
        self._copied = before.replicas > 1
        count = before.replicas

        def owners(key: bytes) -> tuple[NodeAddress, ...]:
            return tuple(nodes[index] for index in find(key, count))

        seconds = max(self._seconds, ALL_INFORMED) if self._copied else self._seconds
        now = self._scheduler.loop.time()
        self._owners.append(_Owners(owners, now + seconds))
        self._scheduler.call_later(seconds, self._check)

    def concerns(self, key: bytes, owners: tuple[NodeAddress, ...]) -> bool:
        """Return whether another proxy may think that a key has other nodes than these."""
        return self._all_wait or any(one.owners(key) != owners for one in self._owners)

    def target(self, key: bytes | None, find: Callable[[], _Target]) -> "_Target":
        """Return the target of requests for a key.

        Args:
            key: the key; None for a request for all nodes.
            find: returns their target when the delay is over.
        """
        return _Waiting(self, key, find)

    def send(
        self, key: bytes | None, find: Callable[[], _Target], request: bytes, receiver: Receiver
    ) -> None:
        """Answer a request, or delay it."""
        if not self._owners:
            find().send(request, receiver)
            return
        waits = key in self._keys or self._all_wait or self._copied
        if key is not None and is_read(request) and not waits:
            receiver.answer(b"EN\r\n" if request.startswith(b"mg ") else b"END\r\n")
            return
        if len(self._waiting) >= _MAX_WAITING or self._bytes + len(request) > _MAX_BYTES:
            receiver.fail(_FULL)
            return
        self._bytes += len(request)
        if key is None:
            self._all_wait = True
            self._forget()
        else:
            self._keys.add(key)
        self._waiting.append(partial(_carry_out, find, request, receiver))

    def _check(self) -> None:
        now = self._scheduler.loop.time()
        self._owners = [one for one in self._owners if one.until > now + _COARSENESS]
        if self._owners:
            return
        waiting, self._waiting = self._waiting, []
        self._keys.clear()
        self._all_wait = False
        self._bytes = 0
        self._forget()
        for carry_out in waiting:
            carry_out()
        self._delivered()


def _carry_out(find: Callable[[], _Target], request: bytes, receiver: Receiver) -> None:
    find().send(request, receiver)


class _Waiting:
    """The target of requests for a key while its node changes."""

    __slots__ = ("_find", "_handover", "_key")

    def __init__(self, handover: Handover, key: bytes | None, find: Callable[[], _Target]) -> None:
        self._handover = handover
        self._key = key
        self._find = find

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request; see `Node.send`."""
        self._handover.send(self._key, self._find, request, receiver)
