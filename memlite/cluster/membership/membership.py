"""Keeps a running server a member: runs due steps, and logs problems."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from memlite.cluster.membership.document import Document
from memlite.cluster.membership.encoding import DocumentError
from memlite.cluster.membership.follower import FOLLOWS_WITHIN
from memlite.cluster.membership.host_addresses import HostAddresses
from memlite.cluster.membership.lease import RENEWAL, Lease
from memlite.cluster.membership.member import Identity, KeysMoveError, Member, NameTakenError
from memlite.cluster.membership.store import Conflict, Store, StoreUnavailableError
from memlite.cluster.membership.warden import Warden
from memlite.core.errors import StartError, StorageError
from memlite.core.logs import failure

__all__ = ["Membership"]

_log = logging.getLogger("memlite")

_RETRY: Final = 1.0
_LEAVING_SECONDS: Final = 3.0


class Membership:
    """The membership of a server: joins when it serves, and leaves before it stops.

    Args:
        store: holds the cluster's objects.
        identity: the node's identity.
        lease: says whether the server may serve.
        empty: removes all items of the server.
        spare: whether it joins as a spare.

    Attributes:
        failure: why the node could not join at first; None if it could.
        hosts: the IP addresses of members that are given by host name.
    """

    def __init__(
        self,
        store: Store,
        identity: Identity,
        lease: Lease,
        empty: Callable[[], Awaitable[None]],
        *,
        spare: bool = False,
    ) -> None:
        self._store: Final = store
        self._lease: Final = lease
        self._member: Final = Member(store, identity, lease, empty, spare=spare)
        self._warden: Final = Warden(store, identity.name)
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""
        self._has_joined = False
        self.failure: StartError | None = None
        self.hosts: Final = HostAddresses()

    @property
    def document(self) -> Document:
        """The cluster as last read."""
        return self._member.document

    def start(self, stop: Callable[[], None]) -> None:
        """Join, and stay a member. Needs a running event loop.

        Args:
            stop: stops the server, if it cannot join at first; `failure` says why.
        """
        self._task = asyncio.get_running_loop().create_task(self._stay(stop))

    async def leave(self) -> None:
        """Leave, and wait until proxies know; the node serves until then."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if not self._member.joined:
            return
        try:
            async with asyncio.timeout(_LEAVING_SECONDS):
                await self._member.leave()
        except (StoreUnavailableError, DocumentError, Conflict, TimeoutError) as error:
            _log.warning("cannot leave the cluster: %s; the lease will expire instead", error)
            return
        _log.info("left the cluster; stopping once all proxies know")
        await asyncio.sleep(FOLLOWS_WITHIN)

    async def close(self) -> None:
        """Stop without leaving, if it has not left, and close the store."""
        self._lease.end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._store.close()

    async def _stay(self, stop: Callable[[], None]) -> None:
        try:
            await self._store.open()
            while True:
                pause = await self._step()
                await asyncio.sleep(pause)
        except StartError as error:
            self.failure = error
            stop()

    async def _step(self) -> float:
        """Run the due step; return the seconds until the next one."""
        try:
            await self._member.step()
            if self._member.joined:
                await self._warden.step(self._member.document)
                topology = self._member.document.topology()
                if topology is not None:
                    await self.hosts.look_up(node.address.host for node in topology.nodes)
        except NameTakenError as error:
            if error.alive and not self._has_joined:
                raise StartError(f"--name: {error}") from None
            self._note_trouble(str(error))
            return _RETRY
        except (KeysMoveError, StoreUnavailableError, DocumentError, StorageError) as error:
            self._note_trouble(str(error))
            return _RETRY
        except Conflict:
            return _RETRY
        self._has_joined |= self._member.joined
        if self._trouble:
            _log.info("--join: the lease is renewed again")
            self._trouble = ""
        return RENEWAL

    def _note_trouble(self, text: str) -> None:
        if text != self._trouble:
            left = max(0.0, self._lease.until - self._lease.now())
            serving = f"serving clients for {left:.0f} s more" if left else "not serving clients"
            _log.warning("--join: %s; %s", text, serving, extra=failure("lease_not_renewed"))
        self._trouble = text
