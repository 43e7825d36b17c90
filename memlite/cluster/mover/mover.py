"""Takes a move of keys from phase to phase."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from memlite.cluster.membership.document import TOPOLOGY, Document, Moving
from memlite.cluster.membership.lease import ALL_INFORMED, LEASE, READING
from memlite.cluster.membership.moves import MoveChangedError, MoveControl
from memlite.cluster.membership.store import Store, StoreUnavailableError
from memlite.cluster.mover.absence import Absence
from memlite.cluster.mover.batches import Batches, Count
from memlite.cluster.mover.listing import listing
from memlite.cluster.mover.nodes import Nodes, NodeTroubleError
from memlite.cluster.mover.pace import Pace
from memlite.cluster.mover.permit import MoverNote
from memlite.cluster.mover.progress import Progress
from memlite.cluster.mover.routes import Routes
from memlite.cluster.moving.marks import Marks, number_from
from memlite.cluster.node_access import NodeAccess
from memlite.cluster.plan import items_text
from memlite.cluster.topology import Phase
from memlite.core.errors import StartError

__all__ = ["Mover", "MoverError", "Result"]

_T = TypeVar("_T")

_PATIENCE: Final = 4 * LEASE
_MAX_IN_BATCH: Final = 256
_LEAST_IN_BATCH: Final = 16
_BATCH_SECONDS: Final = 0.1  # worth of items at the requested rate
_BATCH_BYTES: Final = 4 * 1024 * 1024
# Passes over a node that may yield nothing but errors before it is given up.
_MAX_FRUITLESS_PASSES: Final = 5
# Three deadlines of proxies, of at most `MAX_DEADLINE` each.
_CHANGES_ARE_OVER: Final = LEASE * 2 / 3
_AFTER_CHANGES: Final = (Phase.GATHER, Phase.PREPARE, Phase.SPREAD)
_LATER: Final = "to resume, run the same command again, or memlite cluster resume"


class MoverError(StartError):
    """The move cannot continue; the text is one line."""


@dataclass
class Result:
    """The result of a move.

    Attributes:
        items: number of items moved by movers.
        bytes: total size of their values.
        earlier: how many of them earlier processes moved before this one continued.
        others: how many further items were to move, but were moved or replaced by clients, or
            vanished.
        killed: whether an earlier process may have moved more than it reported.
        dropped: number of items lost because their new node rejected them.
        reason: why the last one was dropped.
        strays: number of outdated items of moving keys that were removed from wrong nodes.
        lost: the names of failed nodes; items that only they held are lost.
        restored: how many of their items were restored from copies.
        copies: number of copies made in the last phase that makes copies.
        epoch: the cluster's epoch at the end.
    """

    items: int = 0
    bytes: int = 0
    earlier: int = 0
    others: int = 0
    killed: bool = False
    dropped: int = 0
    reason: str = ""
    strays: int = 0
    lost: tuple[str, ...] = ()
    restored: int = 0
    copies: int = 0
    epoch: int = 0


class Mover:
    """Completes a move, starting from any phase.

    Args:
        store: holds the cluster's objects.
        progress: displays the progress.
        rate: items per second; 0 for no limit.
        absence: determines which nodes have failed.
        access: how to connect to nodes.
        clock: returns seconds that never decrease.
    """

    def __init__(
        self,
        store: Store,
        progress: Progress,
        *,
        rate: float,
        absence: Absence,
        access: NodeAccess,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store: Final = store
        self._control: Final = MoveControl(store)
        self._progress: Final = progress
        self._pace: Final = Pace(rate)
        most = _MAX_IN_BATCH if not rate else round(rate * _BATCH_SECONDS)
        self._batch: Final = min(max(most, _LEAST_IN_BATCH), _MAX_IN_BATCH)
        self._absence: Final = absence
        self._clock: Final = clock
        self._access: Final = access
        self._nodes: Final = Nodes(access)
        self._document = Document()
        self._progressed = clock()
        self._result = Result()
        self._takes_back = False
        self._abandons = False
        self._given_up = ""  # why nothing was moved
        self._planned = 0  # how many items are to be moved, if known in advance

    def expect(self, items: int) -> None:
        """Note how many items are to be moved."""
        self._planned = items

    def go_on_from(self, note: MoverNote, document: Document) -> None:
        """Count the items another process has moved, if this is the same move and not given up."""
        move = document.move
        if move is None or note.move != move.nonce or move.phase not in (Phase.MOVE, Phase.SETTLE):
            return
        self._planned = note.planned
        self._result.items = self._result.earlier = note.moved
        self._result.bytes = note.size
        self._result.killed = not note.ended

    def noted(self) -> Mapping[str, int | str]:
        """Return the fields of this process's note in the store."""
        move = self._document.move
        return {
            "items": self._progress.items,
            "total": self._progress.total,
            "move": "" if move is None else move.nonce,
            "planned": self._planned,
            "moved": self._result.items,
            "size": self._result.bytes,
        }

    def abandon(self) -> None:
        """Give up a move in which nothing has moved yet, once copies are as before."""
        self._abandons = True

    async def run(self, document: Document) -> Result:
        """Continue a move.

        Args:
            document: the current cluster.

        Raises:
            MoverError: it cannot continue now.
        """
        self._document = document
        try:
            while (move := self._document.move) is not None:
                await self._phase(move)
        except MoveChangedError as error:
            raise MoverError(str(error)) from None
        finally:
            self._progress.close()
            await self._nodes.close()
        if self._given_up:
            raise MoverError(self._given_up)
        self._result.epoch = self._document.epoch
        return self._result

    async def _phase(self, move: Moving) -> None:
        what = f"phase {move.phase.value}"
        self._progress.step(f"{what}: waiting {ALL_INFORMED:.0f} s until all proxies know of it")
        await asyncio.sleep(ALL_INFORMED)
        await self._read(move)
        if self._document.replicas > 1 and move.phase in _AFTER_CHANGES:
            # Proxies that know the phase may still be completing changes that they began before it.
            await asyncio.sleep(_CHANGES_ARE_OVER)
            await self._read(move)
        routes = self._routes()
        match move.phase:
            case Phase.GATHER:
                self._progress.step(f"{what}: making copies")
                await self._gather(routes)
                if self._result.lost:
                    await self._give_up(move, ", ".join(self._result.lost))
                elif self._abandons:
                    await self._finish(move)
                else:
                    await self._enter(move, Phase.PREPARE)
            case Phase.PREPARE:
                self._progress.step(f"{what}: removing outdated items of keys that will move")
                gone = await self._prepare(routes)
                if gone:
                    await self._give_up(move, gone)
                elif self._abandons:
                    await self._finish(move)
                else:
                    await self._enter(move, Phase.MOVE)
            case Phase.MOVE:
                self._progress.step(f"{what}: moving items")
                await self._move(routes)
                await self._enter(move, Phase.SETTLE)
            case Phase.SETTLE:
                self._progress.step(f"{what}: removing marks")
                await self._clear(routes)
                self._count_others()
                await self._finish(move)
            case Phase.BACK:
                self._progress.step(f"{what}: returning items to their former state")
                await self._back(routes)
                await self._finish(move)
            case Phase.SPREAD:
                self._progress.step(f"{what}: making copies")
                await self._spread(routes, move.former or self._document.replicas)
                await self._finish(move)

    async def _give_up(self, move: Moving, gone: str) -> None:
        """End a move in which nothing has moved yet; with replicas, it takes another phase."""
        await self._finish(move)
        self._given_up = f"node {gone} has failed; nothing was moved"

    async def make_way(self, document: Document, names: Sequence[str]) -> None:
        """Prepare the nodes that receive keys in place of failed ones.

        Their items of these keys are outdated. No client reads or changes them before the cluster's
        document says that the move continues without the failed nodes.

        Args:
            document: the current cluster.
            names: the names of the failed nodes.

        Raises:
            MoverError: a node does not answer.
        """
        move = document.move
        assert move is not None  # noqa: S101 - the caller has checked
        self._progress.step(
            f"waiting {ALL_INFORMED:.0f} s until all proxies know that keys are moving"
        )
        await asyncio.sleep(ALL_INFORMED)
        self._document = document.going_on_without(names, 0)
        try:
            routes = self._routes()
            for node in routes.after:
                wanted = routes.inherit(node.name)
                work = partial(self._work, node.name, wanted, Batches.remove, routes)
                try:
                    self._result.strays += (await work()).moved
                except NodeTroubleError as error:
                    raise MoverError(f"{error}; it receives keys of a failed node") from None
        finally:
            await self._nodes.close()

    # The phases

    async def _gather(self, routes: Routes) -> None:
        """Make the future copies, while proxies set holds on copies and read none."""
        await self._remove_foreign(routes, self._document.replicas)
        await self._copy(routes)

    async def _spread(self, routes: Routes, former: int) -> None:
        """Make the missing copies.

        Args:
            routes: where keys are.
            former: the number of nodes of each item until now; items on other nodes are outdated.
        """
        await self._remove_foreign(routes, former)
        await self._copy(routes)

    async def _remove_foreign(self, routes: Routes, replicas: int) -> None:
        self._progress.begin("removing", len(routes.nodes))
        for node in routes.nodes:
            await self._try(node.name, routes.foreign(node.name, replicas), Batches.remove)

    async def _copy(self, routes: Routes) -> None:
        self._result.copies = 0
        self._progress.begin("copying", len(routes.before))
        for node in routes.before:
            await self._try(node.name, routes.decides(node.name), Batches.copy)

    async def _try(
        self,
        name: str,
        wanted: Callable[[bytes], bool],
        action: Callable[[Batches, str, Sequence[bytes]], Awaitable[Count]],
    ) -> None:
        """Apply an action to items of a node; if the node has failed, record that."""
        swept = await self._sweep(name, wanted, action)
        if swept is None:
            self._lose(name)
        elif action is Batches.remove:
            self._result.strays += swept.moved
        elif action is Batches.copy:
            self._result.copies += swept.moved

    async def _restore(self, routes: Routes, lost: str) -> None:
        """Restore the items of a failed node from copies on others.

        No client can change these keys meanwhile.

        Raises:
            MoverError: some items cannot be copied.
        """
        self._progress.step(f"restoring items of {lost} from copies")
        self._progress.begin("restoring", len(routes.nodes))
        for node in routes.nodes:
            count = await self._all(node.name, routes.orphans(node.name, lost), Batches.restore)
            self._result.restored += (count or Count()).moved

    async def _strand(self, routes: Routes) -> None:
        """Copy items that cannot move, before they are removed where they are.

        A change made before an item was frozen finds its hold missing, and sets another one. So all
        items are copied again once no such change is in progress.

        Raises:
            MoverError: some items cannot be copied.
        """
        if await self._strand_once(routes):
            self._progress.step("waiting until changes in progress have finished")
            await asyncio.sleep(_CHANGES_ARE_OVER)
            await self._strand_once(routes)

    async def _strand_once(self, routes: Routes) -> int:
        """Return the number of items copied."""
        seen = 0
        self._progress.begin("copying", len(routes.before))
        for node in routes.before:
            count = await self._all(node.name, routes.stranded(node.name), Batches.strand)
            if count is None:
                self._lose(node.name)
                continue
            seen += count.seen
            if count.dropped:
                self._result.dropped += count.dropped
                self._result.reason = count.reason
        return seen

    async def _all(
        self,
        name: str,
        wanted: Callable[[bytes], bool],
        action: Callable[[Batches, str, Sequence[bytes]], Awaitable[Count]],
    ) -> Count | None:
        """Apply an action to items of a node until all are done; return None if it has failed.

        Raises:
            MoverError: the action fails for some of them.
        """
        total = Count()
        for _ in range(_MAX_FRUITLESS_PASSES):
            total.failed = 0
            count = await self._sweep(name, wanted, action)
            if count is None:
                return None
            total.merge(count)
            if not count.failed:
                return total
        failed = items_text(total.failed)
        raise MoverError(f"{failed} of node {name} cannot be copied: {total.reason}; {_LATER}")

    async def take_back(self, document: Document, names: Sequence[str]) -> None:
        """Restore items of failed nodes from copies to the former nodes of their keys.

        Args:
            document: the current cluster, in the phase `Phase.MOVE`.
            names: the names of the failed nodes.

        Raises:
            MoverError: a node does not answer.
        """
        if document.replicas == 1:
            return
        self._document, self._takes_back = document, True
        for name in names:
            self._lose(name)
        try:
            for name in names:
                await self._restore(self._routes(), name)
        finally:
            self._takes_back = False
            await self._nodes.close()

    async def _prepare(self, routes: Routes) -> str:
        """Clear the destinations; return the name of a failed node, or an empty string.

        With replicas, the other nodes are cleared nevertheless: proxies no longer set holds on
        their copies.
        """
        gone = ""
        self._progress.begin("removing", len(routes.after))
        for node in routes.after:
            swept = await self._sweep(node.name, routes.arrive(node.name), Batches.remove)
            if swept is None or await self._number(node.name) is None:
                gone = node.name
                if not routes.replicated:
                    break
                continue
            self._result.strays += swept.moved
        return gone

    async def _move(self, routes: Routes) -> None:
        self._progress.begin("moving", len(routes.before), self._planned, self._result.items)
        for node in routes.before:
            fruitless = 0
            first = True
            while True:
                count = await self._patiently(node.name, self._pass(node.name, first=first))
                if count is None:
                    self._lose(node.name)
                    if routes.replicated:
                        await self._restore(self._routes(), node.name)
                    break
                if not (count.moved or count.failed or count.dropped):
                    break
                first = False
                fruitless = 0 if count.moved or count.dropped else fruitless + 1
                if fruitless >= _MAX_FRUITLESS_PASSES:
                    raise MoverError(
                        f"{items_text(count.failed)} of node {node.name} cannot be moved: "
                        f"{count.reason}; {_LATER}"
                    )
                if fruitless:
                    await asyncio.sleep(READING)
        await self._thaw(routes)
        if routes.replicated and self._result.lost:
            await self._strand(self._routes())

    async def _clear(self, routes: Routes) -> None:
        # This includes items whose new node has failed: others have them by now.
        leaving = self._routes(gone=())
        self._progress.begin("removing", len(routes.before))
        for node in routes.before:
            wanted = leaving.leave(node.name)
            if routes.replicated and node not in routes.after:
                wanted = _anything  # its copies are no longer read
            if await self._sweep(node.name, wanted, Batches.remove) is None:
                self._lose(node.name)

    def _count_others(self) -> None:
        """Count the items that were to move, but that no mover has moved."""
        its = self._result
        self._result.others = max(self._planned - its.items - its.dropped - its.restored, 0)

    async def _back(self, routes: Routes) -> None:
        self._progress.begin("thawing", len(routes.before))
        for node in routes.before:
            if await self._sweep(node.name, routes.leave(node.name), Batches.thaw) is None:
                self._lose(node.name)
            await self._sweep(node.name, routes.arrive(node.name), Batches.remove)
        await self._thaw(routes)

    async def _thaw(self, routes: Routes) -> None:
        """Unfreeze items that stay where they are because their new node has failed."""
        for node in routes.before if routes.any_lost else ():
            await self._sweep(node.name, routes.stay(node.name), Batches.thaw)

    async def _number(self, name: str) -> Count | None:
        """Make a node number cas uniques from the current time; return None if it has failed.

        The node receives keys for which clients may hold cas uniques of another node, even if the
        item no longer exists. Microseconds since 1970 exceed any number that the other node can
        have reached, as no node carries out a million changes per second.
        """

        async def work() -> Count:
            await self._nodes.connect([name])
            if self._nodes.assigns(name):
                requests = number_from(b"memlite_%d" % time.time_ns(), time.time_ns() // 1000)
                await self._nodes.ask([(name, request) for request in requests])
            return Count()

        return await self._patiently(name, work)

    def _pass(self, name: str, *, first: bool) -> Callable[[], Awaitable[Count]]:
        """Return a function that moves all moving items of a node once.

        Args:
            name: the node's name.
            first: whether this is the first pass, in which keys moved by clients count as progress.
                Later passes see them again, because of the marks that they leave.
        """

        async def work() -> Count:
            nonlocal first
            now, first = first, False
            routes = self._routes()
            return await self._work(name, routes.leave(name), Batches.move, routes, first=now)

        return work

    async def _sweep(
        self,
        name: str,
        wanted: Callable[[bytes], bool],
        action: Callable[[Batches, str, Sequence[bytes]], Awaitable[Count]],
    ) -> Count | None:
        """Apply an action to some items of a node; return None if the node has failed."""

        async def work() -> Count:
            return await self._work(name, wanted, action, self._routes())

        return await self._patiently(name, work)

    async def _work(
        self,
        name: str,
        wanted: Callable[[bytes], bool],
        action: Callable[[Batches, str, Sequence[bytes]], Awaitable[Count]],
        routes: Routes,
        *,
        first: bool = False,
    ) -> Count:
        assert self._document.move is not None  # noqa: S101 - or `_read` would have raised
        self._nodes.know(routes.nodes)
        batches = Batches(self._nodes, routes, Marks(self._document.move.nonce))
        node = next(one for one in routes.nodes if one.name == name)
        moves = action is Batches.move
        total = Count()
        async with listing(node, wanted, self._access) as listed:
            if first or not moves:
                self._progress.node(name, listed.items)
            for batch in listed.batches(self._batch, _BATCH_BYTES):
                keys = [one.key for one in batch]
                await self._pace.wait(len(keys))
                count = await action(batches, name, keys)
                total.merge(count)
                self._progressed = self._clock()
                if moves:
                    self._note(count)
                done = count.seen - count.failed if first else count.moved
                self._progress.advance(done if moves else len(keys), count.bytes)
        return total

    def _note(self, count: Count) -> None:
        self._result.items += count.moved
        self._result.bytes += count.bytes
        self._result.dropped += count.dropped
        if count.dropped:
            self._result.reason = count.reason

    def _lose(self, name: str) -> None:
        if name not in self._result.lost:
            self._result.lost = (*self._result.lost, name)

    # Failures

    async def _patiently(self, name: str, work: Callable[[], Awaitable[Count]]) -> Count | None:
        """Retry work on a node until it succeeds.

        Returns:
            The result; None if the node has failed.

        Raises:
            MoverError: it has not succeeded for a long time.
        """
        since = self._clock()
        said = ""
        announced: set[str] = set()
        while True:
            entry = self._document.entry(name)
            if entry is not None and self._absence.known(entry):
                return None
            try:
                return await work()
            except NodeTroubleError as error:
                if str(error) != said:
                    said = str(error)
                    self._progress.step(f"waiting: {said}")
                its = self._document.entry(error.node)
                gone = its is not None and await self._asking(self._absence.look, its)
                if gone and error.node == name:
                    self._progress.note(f"node {name} has failed; items held only by it are lost")
                    return None
                if gone and self._goes_on_without():
                    # Other nodes have copies of its present and future items.
                    self._lose(error.node)
                    continue
                if gone and error.node not in announced:
                    announced.add(error.node)
                    self._progress.note(
                        f"node {error.node} has failed; waiting for another one with its name"
                    )
                if self._clock() - max(since, self._progressed) >= _PATIENCE:
                    raise MoverError(
                        _advice(error, gone=gone, replicated=self._document.replicas > 1)
                    ) from None
            await asyncio.sleep(READING)
            move = self._document.move
            if move is not None:
                await self._read(move)

    def _goes_on_without(self) -> bool:
        """Return whether to skip a failed node because others have copies.

        For an added node, there might be no replacement.
        """
        move = self._document.move
        if move is None or self._document.replicas == 1:
            return False
        return move.phase in (Phase.GATHER, Phase.SPREAD) or not self._routes().adds

    async def _asking(self, ask: Callable[..., Awaitable[_T]], *arguments: object) -> _T:
        """Retry an idempotent request to the store until it is answered.

        Raises:
            MoverError: it has not answered for a long time.
        """
        since = self._clock()
        while True:
            try:
                return await ask(*arguments)
            except StoreUnavailableError as error:
                if self._clock() - since >= _PATIENCE:
                    raise MoverError(f"the cluster's store: {error}; {_LATER}") from None
            await asyncio.sleep(READING)

    async def _read(self, move: Moving) -> None:
        """Read the cluster.

        Raises:
            MoveChangedError: the move is no longer in this phase.
        """
        stored = await self._asking(self._store.read, TOPOLOGY)
        self._document = Document.decode(None if stored is None else stored.data)
        now = self._document.move
        if now is None or now.nonce != move.nonce:
            raise MoveChangedError(
                "the move was cancelled, as a node left before items were moved"
                if move.phase is Phase.PREPARE
                else "the move has finished or was cancelled"
            )
        if now.lost != move.lost:
            raise MoveChangedError("another process has resumed without failed nodes")
        if now.phase is not move.phase:
            raise MoveChangedError(f"another process has begun phase {now.phase.value}")

    async def _enter(self, move: Moving, phase: Phase) -> None:
        self._document = await self._asking(self._control.enter, move, phase)

    async def _finish(self, move: Moving) -> None:
        try:
            self._document = await self._asking(self._control.finish, move)
        except MoveChangedError:
            # The reply to an attempt may have been lost.
            stored = await self._asking(self._store.read, TOPOLOGY)
            self._document = Document.decode(None if stored is None else stored.data)
            if self._document.move is not None:
                raise

    def _routes(self, gone: Collection[str] | None = None) -> Routes:
        topology = self._document.topology()
        assert topology is not None  # noqa: S101 - without members keys do not move
        gone = self._result.lost if gone is None else gone
        return Routes(topology, gone, takes_back=self._takes_back)


def _anything(_key: bytes) -> bool:
    return True


def _advice(error: NodeTroubleError, *, gone: bool, replicated: bool) -> str:
    if not gone:
        return f"{error}; {_LATER}"
    if replicated:
        return (
            f"{error}, and it has failed; stop all nodes being added, and restore its items from "
            "copies with memlite cluster cancel"
        )
    return (
        f"{error}, and it has failed; start a node with this name, and {_LATER}; to continue "
        f"without it: memlite cluster resume --without {error.node}; if all nodes being added have "
        "failed: memlite cluster cancel"
    )
