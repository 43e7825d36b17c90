"""The keys that move from one node to another, as a request target: an in-process server."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from memlite.cluster.membership.lease import Lease
from memlite.cluster.topology import Phase
from memlite.core.clock import Clock
from memlite.engine.store import StoreEngine
from memlite.memory import Part
from memlite.protocol import Limits, TextParser
from memlite.proxy.gutter_requests import keys_of
from memlite.proxy.moving_backend import PairBackend
from memlite.proxy.node import Node, Receiver
from memlite.proxy.replica_requests import is_read
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.execution.pipelined import StoreExecutor
from memlite.server.execution.text_commands import TextCommands
from memlite.server.interfaces import Client
from memlite.server.scheduler import Scheduler
from memlite.telemetry.counters import Counters
from memlite.telemetry.sampling import Sampler

if TYPE_CHECKING:
    from memlite.server.admin.admin import Admin

__all__ = ["Pair"]

_MAX_PENDING: Final = 4096
_FULL: Final = b"SERVER_ERROR too many requests wait for keys that move between nodes\r\n"
_LARGEST: Final = 1 << 30  # nodes have their own limits


class _Exchange:
    """One request to the server, and its reply."""

    number = -1
    unread = 0

    def __init__(self, pair: "Pair") -> None:
        self.out: list[Part] = []
        admin = cast("Callable[[], Admin]", None)  # requests for nodes are about keys
        commands = TextCommands(pair.engine, admin, cast("Client", self), [])
        self._executor = StoreExecutor(
            pair.engine, commands, self, pair.scheduler, pair.instrumentation
        )
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def carry_out(self, request: bytes) -> bytes:
        TextParser(Limits(item_size=_LARGEST)).receive(request, self._executor)
        self.replies_ready()
        await self._over
        return b"".join(self.out)

    def replies_ready(self) -> None:
        """Note that there are replies."""
        if not (self._executor.pending or self._over.done()):
            self._over.set_result(None)


class Pair:
    """Carries out requests for the keys that move from one node to another.

    Requests for the same key are carried out one after the other, in order of arrival.

    Args:
        source: the node that has the keys before the move.
        destination: the node that has them afterwards.
        nonce: the nonce of the move.
        phase: how far the move is.
        lease: tells until when the phase is known.
        clock: tells when items expire.
        scheduler: runs the requests.
        delivered: called after a reply was handed out.
        copies: whether keys have copies; a change that turns out to be impossible destroys them.

    Attributes:
        name: the names of both nodes, for messages.
        engine: carries out commands.
        scheduler: as above.
        instrumentation: does nothing.
        requests: how many requests there were.
    """

    def __init__(
        self,
        source: Node,
        destination: Node,
        nonce: str,
        phase: Phase,
        *,
        lease: Lease,
        clock: Clock,
        scheduler: Scheduler,
        delivered: Callable[[], None],
        copies: bool,
    ) -> None:
        self._source, self._destination = source, destination
        self._copies = copies
        self.name = f"{source.name} or {destination.name}"
        self._backend = PairBackend(source, destination, nonce, phase, lease, clock)
        counters = Counters()
        self.engine = StoreEngine(self._backend, clock, counters, item_size=_LARGEST)
        self.instrumentation = Instrumentation(counters, Sampler())
        self.scheduler = scheduler
        self._delivered = delivered
        self._last: dict[bytes, asyncio.Future[None]] = {}  # by key: the end of its last request
        self._ends: set[asyncio.Future[None]] = set()  # the ends of all requests in progress
        self.requests = 0

    def enter(self, phase: Phase) -> None:
        """Enter another phase. Requests in progress are not affected."""
        self._backend.phase = phase

    @property
    def down(self) -> bool:
        """Whether changes of keys that have copies are refused at once."""
        return bool(self._refusal())

    def _refusal(self) -> bytes:
        """Return the reply to changes while a node that they may need is down, else empty bytes."""
        needed = [self._source]
        if self._backend.phase is Phase.MOVE:
            needed.append(self._destination)
        elif self._backend.phase is Phase.SETTLE:
            needed = [self._destination]
        return next((node.refusal for node in needed if node.down), b"")

    def in_progress(self) -> list[asyncio.Future[None]]:
        """Return futures that are done when the requests in progress are answered."""
        return list(self._ends)

    def uses(self, key: bytes) -> bool:
        """Return whether a request for a key is in progress."""
        return key in self._last

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request; see `Node.send`."""
        if len(self._ends) >= _MAX_PENDING:
            receiver.fail(_FULL)
            return
        self.requests += 1
        refusal = self._refusal() if self._copies and not is_read(request) else b""
        if refusal:
            receiver.fail(refusal)
            return
        keys = dict.fromkeys(keys_of(request))
        before = {self._last[key] for key in keys if key in self._last}
        end: asyncio.Future[None] = self.scheduler.loop.create_future()
        self._ends.add(end)
        self._last.update(dict.fromkeys(keys, end))
        self.scheduler.spawn(self._serve(request, receiver, list(keys), before, end))

    async def _serve(
        self,
        request: bytes,
        receiver: Receiver,
        keys: list[bytes],
        before: set[asyncio.Future[None]],
        end: asyncio.Future[None],
    ) -> None:
        for other in before:
            await other
        reply = await _Exchange(self).carry_out(request)
        for key in keys:
            if self._last[key] is end:
                del self._last[key]
        self._ends.discard(end)
        end.set_result(None)
        if reply.startswith(b"SERVER_ERROR "):
            receiver.fail(reply)
        else:
            receiver.answer(reply)
        self._delivered()
