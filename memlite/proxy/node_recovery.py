"""Recovery of a node that was away, before it serves again, so that no stale items return."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from memlite.client import FENCE
from memlite.protocol import replies
from memlite.proxy.absences import Absence
from memlite.proxy.emptying import finish_flush
from memlite.proxy.link import Link, NodeLostError

__all__ = ["FLUSH", "NOTE_SECONDS", "NodeRecovery"]

FLUSH: Final = b"flush_all\r\n"


_NOTE: Final = b"memlite:emptied:%b"
NOTE_SECONDS: Final = 60
"""How long a proxy may take to learn of a change after the first one."""


class _Waiting(Protocol):
    @property
    def reads(self) -> bool: ...


class NodeRecovery:
    """Knows whether a node has missed changes, and empties it if so.

    Args:
        missed: whether it may have missed changes before the proxy knew of it.
        empties: whether a node that has missed changes is emptied.
        joined: the change of the nodes that added it; empty if it was there before. Of several
            proxies, only the first to learn of that change empties the node because of it.

    Attributes:
        missed: whether a change did not reach the node, or may not have.
        empties: as above.
        absence: what other nodes record of the changes it misses; None if no change is made
            without it.
        flushes: how often the node was emptied.
    """

    def __init__(self, *, missed: bool, empties: bool, joined: str = "") -> None:
        self._note = _NOTE % joined.encode() if joined else b""
        self._is_new = bool(joined)
        self.missed = missed
        self.empties = empties
        self.absence: Absence | None = None
        self.flushes = 0
        self._late: _Late | None = None

    @property
    def must_empty(self) -> bool:
        """Whether the node must be emptied before it serves again."""
        return self.missed and self.empties

    def failed(self, requests: Iterable[_Waiting]) -> None:
        """Note requests that the node may have missed."""
        self.missed = self.missed or not all(request.reads for request in requests)

    def overdue(self, link: Link, requests: int) -> None:
        """Take over a connection on which the node may still carry out requests.

        Args:
            link: the connection.
            requests: how many have no reply.
        """
        self._late = _Late(link, requests)

    def stop(self) -> None:
        """Close the connection that was taken over."""
        if self._late is not None:
            self._late.close()

    async def settle(self, seconds: float) -> None:
        """Wait until the node has carried out the requests sent before its connection was given up.

        Args:
            seconds: the maximum wait; the connection is then reset.
        """
        if self._late is not None:
            await self._late.wait(seconds)
            self._late = None

    async def prepare(self, link: Link, seconds: float, obeys: Callable[[], None]) -> None:
        """Make sure that nothing stale is served.

        Args:
            link: a connection to the node.
            seconds: time within which each request must be answered.
            obeys: called when the node is known to carry out requests; from then on requests must
                wait instead of being refused.

        Raises:
            NodeLostError: it has not answered, or refuses, or must not be used yet.
        """
        if self.must_empty and await self._was_emptied(link, seconds):
            self.missed = False
        absence = self.absence
        if absence is not None and await absence.prepare(
            lambda request: self._ask(link, request, seconds)
        ):
            self.missed = True
        if self.must_empty:
            await self._make_empty(link, seconds, obeys)
        self._is_new = False
        if absence is not None:
            absence.returned()

    async def _make_empty(self, link: Link, seconds: float, obeys: Callable[[], None]) -> None:
        await self.empty(link, seconds)
        await self._finish(link, seconds)
        if self.must_empty:
            # A request was refused in between. Items that others have stored since are new enough
            # for a plain flush: no request waits for longer than for that.
            obeys()
            await self.empty(link, seconds)
        if self._is_new:
            await self._ask(link, b"set %b 0 %d 0\r\n\r\n" % (self._note, NOTE_SECONDS), seconds)

    async def _finish(self, link: Link, seconds: float) -> None:
        """Wait until the flush is final; requests are still refused."""
        try:
            reply = await finish_flush(lambda request: self._ask(link, request, seconds))
            if reply != replies.OK:
                shown = reply[:80].decode("ascii", "backslashreplace").rstrip()
                raise NodeLostError(f"unexpected reply to flush_all 1: {shown}")
            notes = b"" if self.absence is None else self.absence.notes_there()
            if notes:
                await self._ask(link, FENCE + notes, seconds)
        except BaseException:
            self.missed = True
            raise

    async def _was_emptied(self, link: Link, seconds: float) -> bool:
        """Return whether another proxy has emptied the node since it joined."""
        if not self._is_new:
            return False
        return (await self._ask(link, b"get %b\r\n" % self._note, seconds)).startswith(b"VALUE ")

    async def _ask(self, link: Link, request: bytes, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                return await link.request(request)
        except TimeoutError:
            raise NodeLostError("no reply") from None

    def parting(self) -> bytes | None:
        """Return the request for a node that leaves, so that it is emptied if it returns."""
        return b"delete %b\r\n" % self._note if self._note and self.empties else None

    async def empty(self, link: Link, seconds: float) -> None:
        """Empty the node.

        Args:
            link: a connection to it.
            seconds: time within which it must answer.

        Raises:
            NodeLostError: it has not confirmed this.
        """
        self.missed = False  # changes missed from here on require another flush
        notes = b"" if self.absence is None else self.absence.notes_there()
        try:
            async with asyncio.timeout(seconds):
                await link.ask(FLUSH + notes, replies.OK)
        except (NodeLostError, TimeoutError) as error:
            self.missed = True
            raise NodeLostError(f"flush_all: {error or 'no reply'}") from None
        except BaseException:
            self.missed = True
            raise
        self.flushes += 1


class _Late:
    """A connection that was given up although its requests have no replies yet.

    A paused node reads them when it resumes, at which point it also answers on a new connection.
    Their replies show that it has carried them out.
    """

    def __init__(self, link: Link, requests: int) -> None:
        self._link = link
        self._missing = requests
        self._over = asyncio.Event()
        link.hand_over(self)

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
        self._link.reset()

    def close(self) -> None:
        self._over.set()
        self._link.close()

    def usual_received(self, _data: bytes) -> int:
        return 0

    def replies_received(self, replies: list[bytes]) -> None:
        self._missing -= len(replies)
        if self._missing <= 0:
            self.close()

    def link_lost(self, _reason: str, *, down: bool) -> None:
        self.close()

    def resumed(self) -> None:
        pass
