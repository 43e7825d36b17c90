"""Multi-gets answered by a single node, when each node has copies of all keys."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from memlite.proxy.answers import Answer
from memlite.proxy.changes import Changes
from memlite.proxy.gutter_requests import keys_of
from memlite.proxy.held_parts import PARTS, TOO_MUCH
from memlite.proxy.node import Node, Receiver
from memlite.proxy.replica_requests import Key, has_hold
from memlite.proxy.replicas import ReplicaSet, found_items

__all__ = ["WholeGets"]


class WholeGets:
    """Sends each ``get`` of several keys to one node, in turn.

    Keys that the node lacks are requested from their primaries, and copied to the node.

    Args:
        nodes: the nodes, each of which may have copies of all keys.
        set_of: returns the replica set of a key.
        changes: the changes in progress, which reads of the same keys wait for.
        strict: whether a get fails if a primary fails; otherwise the keys requested from it are
            misses, unless no node has answered.
        count_failed: counts primaries whose keys are misses because they failed.
        again: sends a get that has waited its turn; None for `send`.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        set_of: Callable[[bytes], ReplicaSet],
        changes: Changes,
        *,
        strict: bool,
        count_failed: Callable[[int], None],
        again: Callable[[bytes, Receiver], None] | None = None,
    ) -> None:
        self._nodes: Final = nodes
        self._set_of: Final = set_of
        self._changes: Final = changes
        self._strict: Final = strict
        self._count_failed: Final = count_failed
        self._again: Final = again or self.send
        self._next = 0

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a ``get``; see `Node.send`."""
        changes = self._changes
        again = partial(self._again, request, receiver)
        if not changes.idle and changes.wait(keys_of(request), again, receiver):
            return
        node = self._chosen()
        changes.replica_reads += 1
        node.send(request, Answer(_Get(self, node, request, receiver).answered, reads=True))

    def _chosen(self) -> Node:
        """Return the next node that is up; if none is, the next node, which refuses."""
        nodes = self._nodes
        for _ in nodes:
            self._next = (self._next + 1) % len(nodes)
            if not nodes[self._next].down:
                break
        return nodes[self._next]

    def by_set(self, keys: Sequence[bytes]) -> dict[ReplicaSet, list[bytes]]:
        """Group the keys, without duplicates, by replica set."""
        sets: dict[ReplicaSet, list[bytes]] = {}
        for key in dict.fromkeys(keys):
            sets.setdefault(self._set_of(key), []).append(key)
        return sets

    def failed(self, parts: int, *, answered: bool) -> bool:
        """Note failed primaries; return whether the whole get fails because of them."""
        if parts and answered and not self._strict:
            self._count_failed(parts)
        return bool(parts) and (self._strict or not answered)


class _Get:
    """A ``get`` of several keys, and its results so far."""

    def __init__(self, owner: WholeGets, node: Node, request: bytes, receiver: Receiver) -> None:
        self._owner = owner
        self._node = node
        self._keys = keys_of(request)
        self._receiver = receiver
        self._items: dict[bytes, bytes] = {}
        self._held = 0  # bytes of items
        self._overflows = False  # whether the items are too large to hold
        self._answered = False  # whether any node has answered
        self._pending = 0
        self._failed: list[bytes] = []  # errors from primaries
        self._error = b""  # the error from the node

    def answered(self, reply: bytes, failed: bool) -> None:
        """Take the node's reply."""
        missing = self._keys
        holds = True
        if not failed and reply.startswith((b"VALUE ", b"END")):
            self._answered = True
            self._items, missing = found_items(self._keys, reply)
            holds = has_hold(reply)
        elif not failed:  # not a reply to a get; the primaries may send the same
            self._error = reply
        sets = self._owner.by_set(missing)
        if not holds:  # the node is authoritative for keys whose primary it is
            sets = {one: keys for one, keys in sets.items() if one.primary is not self._node}
        if sets:
            self._hold(self._items)
        self._pending = len(sets)
        if not sets:
            self._end()
        for one, keys in sets.items():
            self._ask(one, keys)

    def _ask(self, primary: ReplicaSet, keys: Sequence[bytes]) -> None:
        def take(reply: bytes, failed: bool) -> None:
            if failed or not reply.startswith((b"VALUE ", b"END")):
                self._failed.append(reply)
            else:
                found, _ = found_items(keys, reply)
                self._items |= found
                if self._pending > 1:
                    self._hold(found)
                fills = self._answered and primary.primary is not self._node
                for key in found if fills else ():
                    primary.fill(self._node, key, Key(key, b""))
                self._answered = True
            self._pending -= 1
            if not self._pending:
                self._end()

        request = b"get %b\r\n" % b" ".join(keys)
        primary.ask_primary(request, Answer(take, reads=True))

    def _hold(self, items: dict[bytes, bytes]) -> None:
        size = sum(map(len, items.values()))
        if self._overflows or not PARTS.hold(size):
            self._overflows = True
            self._items = {}
            self._release()
        else:
            self._held += size

    def _release(self) -> None:
        PARTS.release(self._held)
        self._held = 0

    def _end(self) -> None:
        self._release()
        if self._overflows:
            self._receiver.fail(TOO_MUCH)
            return
        if self._owner.failed(len(self._failed), answered=self._answered):
            own = b"" if self._answered else self._error
            self._receiver.fail(own or self._failed[0])
            return
        items = self._items
        parts = [items[key] for key in self._keys if key in items]
        self._receiver.answer(b"".join([*parts, b"END\r\n"]))
