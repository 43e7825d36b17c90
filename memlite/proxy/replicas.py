"""Keys with copies: a primary, which decides, and replicas, which help answer reads."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from memlite.client import FENCE
from memlite.protocol import replies
from memlite.proxy.answers import Answer
from memlite.proxy.broadcast import ask_all
from memlite.proxy.changes import Change, Changes, Primary
from memlite.proxy.emptying import finish_all, is_memcached
from memlite.proxy.gutter_requests import keys_of
from memlite.proxy.held_parts import PARTS
from memlite.proxy.leftover_holds import odd, remove_leftover
from memlite.proxy.node import TOO_LATE, Node, Receiver
from memlite.proxy.replica_requests import (
    Key,
    drop,
    fill,
    has_hold,
    is_hold,
    is_read,
    is_spread,
    key_of,
    lease,
    number,
    shows_hold,
)
from memlite.proxy.resend import Several, Target, send_again

__all__ = ["FlushTwice", "ReplicaSet", "ReplicaSets", "found_items"]

_MAX_FILLING: Final = 256
_DELAYED: Final = b"SERVER_ERROR a delayed flush_all is not possible with replicas\r\n"


class ReplicaSet:
    """The nodes that have certain keys.

    Args:
        primary: the node that decides.
        replicas: the nodes that have copies.
        changes: the changes in progress.
        write: which nodes replies to changes wait for; see `Change`.
        spreads: whether replicas answer reads.
        find: returns the target for a key after a request has waited its turn; None for this set.
        fills: whether changes fill copies; see `Change`.

    Attributes:
        primary: as above.
    """

    def __init__(
        self,
        primary: Primary,
        replicas: Sequence[Node],
        changes: Changes,
        write: str,
        *,
        spreads: bool,
        find: Callable[[bytes], Target] | None = None,
        fills: bool = True,
    ) -> None:
        self.primary = primary
        self._find = find or self._stays
        self._replicas = replicas
        # Only a plain node's reads are spread.
        self._readers: Sequence[Node] = (cast("Node", primary), *replicas) if spreads else ()
        self._changes = changes
        self._write = write
        self._spreads = spreads
        self._fills = fills
        self._next = 0

    def _stays(self, _key: bytes) -> Target:
        return self

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request; see `Node.send`."""
        changes = self._changes
        if changes.idle and request.startswith(b"get ") and self._spreads:
            self._read(request, receiver)
            return
        keys, reads = keys_of(request), is_read(request)
        if len(keys) > 1 and not reads:
            self._touch(request, keys, receiver)
            return
        size = 0 if reads else len(request)
        again = partial(send_again, request, receiver, self._find)
        if changes.wait(keys, again, receiver, size):
            return
        if reads:
            if self._spreads and is_spread(request):
                self._read(request, receiver)
            else:
                self.ask_primary(request, receiver)
            return
        replicas = self._replicas
        change = Change(
            changes,
            key_of(request),
            request,
            receiver,
            self.primary,
            replicas,
            self._write,
            fills=self._fills,
        )
        change.start(keys[0])

    def _touch(self, request: bytes, keys: Sequence[bytes], receiver: Receiver) -> None:
        """Carry out a ``gat`` of several keys, which changes each of them."""
        words = request.split(b" ", 2)
        whole = Several(len(keys), receiver)
        for index, key in enumerate(keys):
            one = b"%b %b %b\r\n" % (words[0], words[1], key)
            self.send(one, Answer(whole.taker(index)))

    # Reading

    def _read(self, request: bytes, receiver: Receiver) -> None:
        node = self._chosen()
        if node is None or node is self.primary:
            self.ask_primary(request, receiver)
            return
        self._changes.replica_reads += 1
        kind = _Reading if request.startswith(b"mg ") or request.count(b" ") == 1 else _ReadingMany
        node.send(request, kind(self, node, request, receiver))

    def _chosen(self) -> Node | None:
        """Return the next node that is up; None if none is."""
        nodes = self._readers
        for _ in nodes:
            self._next = (self._next + 1) % len(nodes)
            node = nodes[self._next]
            if not node.down:
                return node
        return None

    def ask_primary(self, request: bytes, receiver: Receiver) -> None:
        """Send a read to the primary.

        It may have a hold: the primary was a replica until a moment ago, or another proxy has newer
        knowledge of the nodes.
        """
        self.primary.send(request, _FromPrimary(self, request, receiver))

    def ask_again(self, request: bytes, receiver: Receiver) -> None:
        """Repeat a read that has met a hold at the primary, key by key."""
        primary = self.primary
        keys = keys_of(request)
        if len(keys) > 1:
            whole, name = Several(len(keys), receiver), request.split(b" ", 1)[0]
            for index, key in enumerate(keys):
                one = b"%b %b\r\n" % (name, key)
                self.ask_primary(one, Answer(whole.taker(index), reads=True))
            return

        def removed(error: bytes) -> None:
            if error:
                receiver.fail(error)
            else:
                primary.send(request, Answer(taken, reads=True))

        def taken(reply: bytes, failed: bool) -> None:
            if failed or has_hold(reply):
                receiver.fail(reply if failed else odd(primary))
            else:
                receiver.answer(reply)

        remove_leftover(primary, key_of(request), self._changes.newest_left, removed)

    def fill(self, node: Node, name: bytes, key: Key) -> None:
        """Copy an item from the primary to a replica, unless it changes meanwhile."""
        filling = self._changes.filling
        if name not in filling and len(filling) < _MAX_FILLING:
            filling.add(name)
            _Filling(self._changes, self.primary, node, name, key).start()


class _FromPrimary:
    """Receives a primary's reply to a read."""

    __slots__ = ("_receiver", "_request", "_set")

    reads = True

    def __init__(self, owner: ReplicaSet, request: bytes, receiver: Receiver) -> None:
        self._set = owner
        self._request = request
        self._receiver = receiver

    def answer(self, reply: bytes) -> None:
        if has_hold(reply):
            self._set.ask_again(self._request, self._receiver)
        else:
            self._receiver.answer(reply)

    def fail(self, error: bytes) -> None:
        self._receiver.fail(error)


class _Reading:
    """Receives a replica's reply to a read of one key."""

    __slots__ = ("_node", "_receiver", "_request", "_set")

    reads = True

    def __init__(self, owner: ReplicaSet, node: Node, request: bytes, receiver: Receiver) -> None:
        self._set = owner
        self._node = node
        self._request = request
        self._receiver = receiver

    def answer(self, reply: bytes) -> None:
        if reply.startswith((b"VALUE ", b"VA ")) and not shows_hold(reply):
            self._receiver.answer(reply)
        elif reply in (b"END\r\n", b"EN\r\n"):
            self._set.ask_primary(self._request, Answer(self._missed, reads=True))
        else:
            self._set.ask_primary(self._request, self._receiver)

    def fail(self, _error: bytes) -> None:
        self._set.ask_primary(self._request, self._receiver)

    def _missed(self, reply: bytes, failed: bool) -> None:
        if failed:
            self._receiver.fail(reply)
            return
        if reply.startswith((b"VALUE ", b"VA ")):
            self._set.fill(self._node, keys_of(self._request)[0], key_of(self._request))
        self._receiver.answer(reply)


class _ReadingMany:
    """Receives a replica's reply to a ``get`` of several keys."""

    __slots__ = ("_held", "_keys", "_missing", "_node", "_receiver", "_reply", "_request", "_set")

    reads = True

    def __init__(self, owner: ReplicaSet, node: Node, request: bytes, receiver: Receiver) -> None:
        self._set = owner
        self._node = node
        self._request = request
        self._receiver = receiver

    def answer(self, reply: bytes) -> None:
        if not reply.startswith((b"VALUE ", b"END")):
            self.fail(reply)
            return
        keys = keys_of(self._request)
        kept, missing = found_items(keys, reply)
        if not missing:
            self._receiver.answer(reply)
            return
        self._held = sum(map(len, kept.values()))
        if not PARTS.hold(self._held):
            self.fail(reply)
            return
        self._keys, self._reply, self._missing = keys, kept, missing
        request = b"get " + b" ".join(dict.fromkeys(missing)) + b"\r\n"
        self._set.ask_primary(request, Answer(self._completed, reads=True))

    def fail(self, _error: bytes) -> None:
        self._set.ask_primary(self._request, self._receiver)

    def _completed(self, reply: bytes, failed: bool) -> None:
        PARTS.release(self._held)
        if failed or not reply.startswith((b"VALUE ", b"END")):
            self._receiver.fail(reply)
            return
        found, _ = found_items(list(dict.fromkeys(self._missing)), reply)
        for key in found:
            self._set.fill(self._node, key, Key(key, b""))
        both = self._reply | found
        parts = [both[key] for key in self._keys if key in both]
        self._receiver.answer(b"".join(parts) + b"END\r\n")


def found_items(keys: Sequence[bytes], reply: bytes) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Return the items of a reply by key, without holds, and the keys that lack an item."""
    found: dict[bytes, bytes] = {}
    position = 0
    while reply.startswith(b"VALUE ", position):
        line_end = reply.index(b"\r\n", position)
        words = reply[position:line_end].split(b" ")
        end = line_end + 2 + int(words[3]) + 2
        item = reply[position:end]
        if not shows_hold(item):
            found[words[1]] = item
        position = end
    return found, [key for key in keys if key not in found]


class _Filling:
    """Copies an item to a replica that lacks it, under a lease."""

    def __init__(
        self, changes: Changes, primary: Primary, replica: Node, name: bytes, key: Key
    ) -> None:
        self._changes = changes
        self._primary = primary
        self._replica = replica
        self._name = name
        self._key = key
        self._unique = 0

    def start(self) -> None:
        self._replica.send(lease(self._key), Answer(self._leased, reads=True))

    def _leased(self, reply: bytes, failed: bool) -> None:
        self._unique = 0 if failed else number(reply, b"c") or 0
        if not self._unique:
            self._end(reply, failed)
            return
        request = b"mg %b%b v f t c\r\n" % self._key
        self._primary.send(request, Answer(self._read, reads=True))

    def _read(self, reply: bytes, failed: bool) -> None:
        request = drop(self._key, self._unique)
        words = reply[: reply.find(b"\r\n")].split()
        stale = is_hold(reply) or {b"W", b"X", b"Z"} & set(words)
        if not failed and reply.startswith(b"VA ") and not stale:
            left = number(reply, b"t")
            flags = number(reply, b"f") or 0
            if left:
                value = reply[reply.index(b"\r\n") + 2 : -2]
                exptime = b"%d" % max(left, 0)
                request = fill(self._key, self._unique, b"%d" % flags, exptime, value)
                self._changes.fills += 1
        elif b"W" in words:
            # The right to recache a stale item belongs to a client.
            unique = number(reply, b"c") or 0
            again = b"md %b%b I C%d\r\n" % (*self._key, unique)
            self._primary.send(again, Answer(lambda *_: None))
        self._replica.send(request, Answer(self._end, reads=True))

    def _end(self, _reply: bytes, _failed: bool) -> None:
        self._changes.filling.discard(self._name)


class FlushTwice:
    """Empties all nodes, and again when all have answered.

    A copy that was being filled in the meantime may have received an item from before the flush.
    Some memcached nodes might keep an item that others drop: see `memlite.proxy.emptying`. Requests
    wait until the flush is over.

    Args:
        nodes: the nodes.
        changes: the changes in progress, which the flush waits for.
        valid: returns whether these are still the nodes; None if they always are.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        changes: Changes,
        valid: Callable[[Sequence[Node]], bool] | None = None,
    ) -> None:
        self._nodes = nodes
        self._changes = changes
        self._valid = valid

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send ``flush_all``; its reply is the first that is not ``OK``, else ``OK``."""
        words = request.split()
        if len(words) > 1 and int(words[1]) > 0:
            receiver.fail(_DELAYED)
            return
        self._changes.flush(
            lambda: self._fence(request, receiver),
            lambda: self.send(request, receiver),
        )

    def _fence(self, request: bytes, receiver: Receiver) -> None:
        """Flush once replicas have answered earlier reads and primaries were sent the rest."""
        missing = len(self._nodes)
        memcacheds: list[Node] = []

        def take(node: Node, reply: bytes, _failed: bool) -> None:
            nonlocal missing
            missing -= 1
            if is_memcached(reply):
                memcacheds.append(node)
            if not missing:
                self._flush(request, receiver, memcacheds, again=True)

        for node in self._nodes:
            node.send(FENCE, Answer(partial(take, node), reads=True))

    def _flush(
        self, request: bytes, receiver: Receiver, memcacheds: Sequence[Node], *, again: bool
    ) -> None:
        absences = self._changes.absences

        def flushed(reply: bytes) -> None:
            if reply == replies.OK and again:
                self._flush(request, receiver, memcacheds, again=False)
            elif reply == replies.OK and memcacheds:
                restore = None if absences is None else absences.kept(memcacheds)
                finish_all(memcacheds, partial(finished, restore))
            else:
                over(reply)

        def finished(restore: Callable[[], None] | None, reply: bytes) -> None:
            if restore is not None:
                restore()
            over(reply)

        def over(reply: bytes) -> None:
            if reply.startswith(b"SERVER_ERROR "):
                receiver.fail(reply)
            else:
                receiver.answer(reply)
            self._changes.flushed()

        if self._valid is not None and not self._valid(self._nodes):
            over(TOO_LATE)  # the nodes have changed while it waited
        else:
            nodes = self._nodes if absences is None else absences.flushed(self._nodes)
            ask_all(nodes, request, flushed)


class ReplicaSets:
    """Finds the replica set of a key.

    Args:
        nodes: the nodes.
        order: returns the indexes of the nodes that have a key, the primary first.
        changes: the changes in progress.
        write: which nodes replies to changes wait for; see `Change`.
        spreads: whether replicas answer reads.
        find: see `ReplicaSet`.
        valid: see `FlushTwice`.

    Attributes:
        flushing: the target of requests for all nodes.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        order: Callable[[bytes], Sequence[int]],
        changes: Changes,
        write: str,
        *,
        spreads: bool,
        find: Callable[[bytes], Target],
        valid: Callable[[Sequence[Node]], bool],
    ) -> None:
        self._nodes = nodes
        self._find = find
        self._order = order
        self._changes = changes
        self._write = write
        self._spreads = spreads
        self._sets: dict[tuple[int, ...], ReplicaSet] = {}
        self.flushing = FlushTwice(nodes, changes, valid)

    def of(self, key: bytes) -> ReplicaSet:
        """Return the replica set of a key."""
        indexes = tuple(self._order(key))
        found = self._sets.get(indexes)
        if found is None:
            nodes = [self._nodes[index] for index in indexes]
            found = ReplicaSet(
                nodes[0],
                nodes[1:],
                self._changes,
                self._write,
                spreads=self._spreads,
                find=self._find,
            )
            self._sets[indexes] = found
        return found
