"""The commands that move keys."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from memlite.cluster import plan as plans
from memlite.cluster.dump import survey_all
from memlite.cluster.hot_keys import demote
from memlite.cluster.membership.document import Document, Entry, Moving
from memlite.cluster.membership.encoding import DocumentError
from memlite.cluster.membership.lease import LEASE, READING
from memlite.cluster.membership.member import change_topology
from memlite.cluster.membership.moves import MoveChangedError, MoveControl
from memlite.cluster.membership.reading import read_document
from memlite.cluster.membership.store import Store, StoreUnavailableError
from memlite.cluster.membership.url import store_of
from memlite.cluster.mover.absence import Absence
from memlite.cluster.mover.changes import Change, change_of
from memlite.cluster.mover.mover import Mover, Result
from memlite.cluster.mover.nodes import check_nodes
from memlite.cluster.mover.permit import Permit, PermitLostError
from memlite.cluster.mover.progress import Progress, progress_display
from memlite.cluster.mover.routes import check_without
from memlite.cluster.node_access import NodeAccess
from memlite.cluster.topology import Phase, Topology
from memlite.core import signals
from memlite.core.errors import ConfigError, StartError

__all__ = ["Request", "run"]

_DEMOTION_SECONDS: Final = 4 * LEASE


@dataclass(frozen=True, slots=True)
class Request:
    """A command.

    Attributes:
        action: add, drain, remove, replicas, resume or cancel.
        url: the URL of the store.
        access: how to connect to nodes.
        nodes: the arguments.
        rate: items per second; 0 for no limit.
        lost: the names of nodes to treat as failed.
        without: the names of failed nodes, which get no more keys.
        replicas: the number of nodes to store each item on.
        dry_run: whether to change nothing.
        json: whether to show the result as JSON.
        quiet: whether to hide the progress.
    """

    action: str
    url: str
    access: NodeAccess
    nodes: tuple[str, ...] = ()
    rate: float = 0
    lost: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    replicas: int = 1
    dry_run: bool = False
    json: bool = False
    quiet: bool = False


def run(request: Request) -> None:
    """Carry out a command.

    Raises:
        ConfigError: an argument is wrong.
        StartError: the command cannot be carried out now.
    """
    label = f"cluster {request.action}"
    store = store_of(request.url, label)
    progress = progress_display(quiet=request.quiet)
    signals.unblock()
    try:
        asyncio.run(_run(request, store, progress))
    except KeyboardInterrupt:
        progress.close()
        raise StartError(
            f"{label}: interrupted; if keys are moving, run the same command again to resume"
        ) from None
    except (StoreUnavailableError, DocumentError, MoveChangedError, PermitLostError) as error:
        raise StartError(f"{label}: {error}") from None
    except StartError as error:
        text = str(error)
        raise StartError(text if text.startswith("cluster ") else f"{label}: {text}") from None
    finally:
        progress.close()


async def _run(request: Request, store: Store, progress: Progress) -> None:
    async with _opened(store):
        command = _Command(request, store, progress)
        document = await read_document(store)
        if request.action == "cancel":
            await command.cancel(document)
        elif request.action == "resume":
            await command.resume(document)
        elif request.action == "replicas":
            await command.replicate(document)
        else:
            await command.change(document)


@contextlib.asynccontextmanager
async def _opened(store: Store) -> AsyncIterator[None]:
    try:
        await store.open()
        yield
    finally:
        await store.close()


class _Command:
    def __init__(self, request: Request, store: Store, progress: Progress) -> None:
        self._request = request
        self._store = store
        self._progress = progress
        self._control = MoveControl(store)
        self._absence = Absence(store)
        self._permitted = Permit(store, progress.step)
        self._mover = Mover(
            store, progress, rate=request.rate, absence=self._absence, access=request.access
        )

    async def change(self, document: Document) -> None:
        """Change the members."""
        request = self._request
        change = change_of(document, request.action, request.nodes)
        self._lose(document)
        if document.move is not None:
            if change.target != document.move.target:
                raise StartError(f"{_described(document)}; see memlite cluster resume")
            await self.resume(document)
            return
        if change.target == tuple(one.name for one in document.members):
            document = await self._without_a_move(document, change)
            self._show(Result(epoch=document.epoch), document)
            return
        self._check_left(document, change)
        before = document.topology()
        if before is not None:
            after = _after(document, change, before)
            plan = await self._planned(document, before, after)
            if request.dry_run:
                _write((plans.as_json if request.json else plans.as_text)(plan))
                return
            self._mover.expect(plan.deciding)
        elif request.dry_run:
            _write("the cluster has no members yet, so there are no keys to move\n")
            return
        elif document.replicas > 1:
            await self._check_nodes(_changed(document, change))
        async with self._permit():
            await self._demote()
            document = await self._control.begin(
                lambda now, nonce: change.begun(now, nonce, time.time())
            )
            await self._move(document)

    async def replicate(self, document: Document) -> None:
        """Store items on more nodes."""
        count = self._request.replicas
        self._lose(document)
        if document.replicas == count:
            if document.move is None:
                self._say(f"each item is already stored on {_nodes(count)}")
            else:
                await self.resume(document)
            return
        _check_replicas(count, document)
        await self._check_nodes(document)
        async with self._permit():
            await self._demote()
            document = await self._control.begin(partial(_replicated, count))
            if document.move is None:
                self._show(Result(epoch=document.epoch), document)
            else:
                await self._move(document)

    async def _demote(self) -> None:
        """Demote all hot keys, and wait until proxies have removed their copies.

        Raises:
            StartError: they have not done so in a long time; perhaps no proxy is running.
        """

        def demoted(document: Document) -> Document:
            present, now = document.hot_keys, time.time()
            listed = demote(present, [one.key for one in present], document.next_epoch(now))
            return document.with_hot_keys(listed, now)

        until = time.monotonic() + _DEMOTION_SECONDS
        while hot := (await change_topology(self._store, demoted)).hot_keys:
            self._progress.step(f"waiting until proxies have removed copies of {len(hot)} hot keys")
            if time.monotonic() >= until:
                raise StartError(
                    "proxies have not removed the copies of hot keys; are any proxies running?"
                )
            await asyncio.sleep(LEASE / 3)

    async def resume(self, document: Document) -> None:
        """Continue the move in progress."""
        self._lose(document)
        if document.move is None:
            self._say("no keys are moving")
            return
        if self._request.dry_run:
            raise StartError(_described(document))
        async with self._permit():
            document = await read_document(self._store)
            if self._request.without:
                document = await self._without(document)
            await self._move(document)

    async def _without(self, document: Document) -> Document:
        """Give the keys of failed nodes to others; return the resulting cluster."""
        move, names = document.move, self._request.without
        if document.replicas > 1:
            raise StartError(
                "--without: cannot be combined with replicas. A drain continues without a failed "
                "node; if an added node has failed, restart it, or stop all nodes being added and "
                "run memlite cluster cancel"
            )
        if move is None:
            raise StartError("no keys are moving any more")
        missing = [name for name in names if name not in move.lost]
        if not missing:
            return document
        gone = [_expected(document, move, name) for name in missing]
        _check_rest(document, missing)
        await self._wait_until_gone(
            gone,
            "{} is considered alive; resume without --without. If it has failed permanently: stop "
            "it",
        )

        def check(now: Document) -> None:
            for entry in gone:
                if now.entry(entry.name) != entry:
                    raise StartError(f"{entry.name} has come back; resume without --without")

        await self._mover.make_way(document, missing)
        return await self._control.go_on_without(move, missing, check)

    async def cancel(self, document: Document) -> None:
        """Cancel the move in progress."""
        self._lose(document)
        move = document.move
        if move is None:
            self._say("no keys are moving")
            return
        async with self._permit():
            if move.phase in (Phase.GATHER, Phase.PREPARE):
                if document.replicas > 1:
                    self._mover.abandon()
                    await self._move(document)
                    return
                document = await self._control.finish(move)
                self._show(Result(epoch=document.epoch), document)
                return
            if move.phase is Phase.MOVE:
                document = await self._turned_back(document, move)
            elif move.phase not in (Phase.BACK, Phase.SPREAD):
                raise StartError("all items have already moved; finish with memlite cluster resume")
            await self._move(document)

    async def _turned_back(self, document: Document, move: Moving) -> Document:
        """Begin the phase in which keys return to their former nodes."""
        new = [one for one in document.target if not document.is_member(one.name)]
        if not new:
            raise StartError(
                "items have moved to nodes that remain; continue with memlite cluster resume"
            )
        await self._wait_until_gone(
            new,
            "items have moved to {}, which is considered alive; continue with memlite cluster "
            "resume. If it has failed permanently: stop it",
        )

        def check(now: Document) -> None:
            for entry in new:
                if now.entry(entry.name) != entry:
                    raise StartError(
                        f"{entry.name} has come back; continue with memlite cluster resume"
                    )

        await self._mover.take_back(document, [one.name for one in new])
        return await self._control.enter(move, Phase.BACK, check)

    async def _wait_until_gone(self, entries: Sequence[Entry], there: str) -> None:
        """Wait until the leases of nodes have expired.

        Args:
            entries: the nodes.
            there: the message for a node that is still alive, with a placeholder for its name.

        Raises:
            StartError: a node is still alive.
        """
        until = time.monotonic() + LEASE + READING
        for entry in entries:
            while not await self._absence.look(entry):
                if not entry.leased or time.monotonic() > until:
                    how = "" if entry.leased else f" and use --lost {entry.name}"
                    raise StartError(there.format(entry.name) + how)
                await asyncio.sleep(READING)

    # Parts of the commands

    def _check_left(self, document: Document, change: Change) -> None:
        """Check that enough nodes remain for the replicas.

        Raises:
            StartError: there are enough nodes now, but would not be after the change.
        """
        there = [one for one in document.members if not self._absence.known(one)]
        needed, left = min(document.replicas, len(there)), len(change.target)
        if left < needed:
            raise StartError(
                f"each item is stored on {_nodes(document.replicas)}, but only {_nodes(left)} "
                "would be left; add others first"
            )

    def _lose(self, document: Document) -> None:
        for name in self._request.lost:
            entry = document.entry(name)
            if entry is None:
                raise StartError(f"--lost: unknown node {name!r}")
            self._absence.lose(entry)

    async def _planned(self, document: Document, before: Topology, after: Topology) -> plans.Plan:
        """Check that the nodes support the move; return the plan of it."""
        lost = [node for node in before.nodes if self._is_lost(document, node.name)]
        asked = [node for node in before.nodes if node not in lost]
        receiving = [node.name for node in after.nodes]
        new = [node for node in after.nodes if node.name not in {one.name for one in before.nodes}]
        self._progress.step("asking the nodes for their items")
        for note in await check_nodes([*asked, *new], receiving, self._request.access):
            self._progress.note(f"note: {note}")
        counted = plans.surveys(before, after)
        await survey_all(
            asked,
            [counted[before.nodes.index(node)] for node in asked],
            self._request.access,
            self._request.action,
        )
        return plans.plan_of(before, after, counted)

    async def _check_nodes(self, document: Document) -> None:
        """Check that all members can hold copies, whose cas uniques are arbitrary."""
        topology = document.topology()
        if topology is None:
            return
        nodes = [one for one in topology.nodes if not self._is_lost(document, one.name)]
        self._progress.step("asking the nodes for their settings")
        await check_nodes(nodes, [node.name for node in nodes], self._request.access)

    def _is_lost(self, document: Document, name: str) -> bool:
        entry = document.entry(name)
        return entry is not None and self._absence.known(entry)

    async def _without_a_move(self, document: Document, change: Change) -> Document:
        if self._request.dry_run or not change.forgets:
            return document
        return await change_topology(
            self._store, lambda now: change.without_a_move(now, time.time())
        )

    @contextlib.asynccontextmanager
    async def _permit(self) -> AsyncIterator[None]:
        await self._permitted.acquire()
        try:
            yield
        finally:
            await self._permitted.release()

    async def _move(self, document: Document) -> None:
        """Move keys while no other process does."""
        permit, mover = self._permitted, self._mover
        if permit.before is not None and self._request.action != "cancel":
            mover.go_on_from(permit.before, document)
        permit.progress = mover.noted
        moving = asyncio.ensure_future(mover.run(document))
        holding = asyncio.ensure_future(permit.hold())
        try:
            await asyncio.wait([moving, holding], return_when=asyncio.FIRST_COMPLETED)
            if not moving.done():
                await holding  # raises the reason
            result = await moving
        finally:
            for task in (moving, holding):
                task.cancel()
            await asyncio.gather(moving, holding, return_exceptions=True)
        self._show(result, await read_document(self._store))

    def _say(self, text: str) -> None:
        _write(json.dumps({"message": text}) + "\n" if self._request.json else f"{text}\n")

    def _show(self, result: Result, document: Document) -> None:
        self._progress.close()
        if self._request.json:
            _write(_as_json(result, document))
        else:
            _write(_as_text(result, document, moves=self._request.action != "replicas"))
        if self._request.action != "remove":
            return
        for name in self._request.nodes:
            for one in document.spares:
                if name in (one.name, one.address) and one.leased and not self._request.quiet:
                    sys.stderr.write(f"{one.name} remains registered as a spare until it stops\n")


def _expected(document: Document, move: Moving, name: str) -> Entry:
    """Return the destination node of this name.

    Raises:
        StartError: there is no such destination, or no items are moving at the moment.
    """
    if move.phase is Phase.PREPARE:
        raise StartError("no items have moved yet; cancel the move with memlite cluster cancel")
    if move.phase is not Phase.MOVE:
        raise StartError("all items have already moved; finish with memlite cluster resume")
    entry = document.entry(name)
    if entry is None or name not in move.target:
        raise StartError(
            f"--without: {name!r} is not a destination; keys move to {', '.join(move.target)}"
        )
    return entry


def _check_rest(document: Document, missing: Sequence[str]) -> None:
    """Check that a move can continue without some nodes.

    Raises:
        StartError: it cannot.
    """
    move, names = document.move, ", ".join(missing)
    assert move is not None  # noqa: S101 - the caller has checked
    left = set(move.target).difference(missing)
    if not left:
        raise StartError(f"without {names}, no node would be left")
    if left == {one.name for one in document.members}:
        raise StartError(f"without {names}, no node is added; use memlite cluster cancel instead")
    topology = document.going_on_without(missing, 0).topology()
    assert topology is not None  # noqa: S101 - there are members
    try:
        check_without(topology)
    except ConfigError as error:
        raise StartError(f"--without {names}: {error}; start a node with this name") from None


def _changed(document: Document, change: Change) -> Document:
    return change.begun(replace(document, hot_keys=()), "0" * 32, time.time())


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _after(document: Document, change: Change, before: Topology) -> Topology:
    changed = _changed(document, change).topology()
    if changed is None or changed.move is None:
        raise StartError("no member would be left")
    return replace(before, nodes=changed.move.nodes)


def _check_replicas(count: int, document: Document) -> None:
    """Check that items can be stored on more nodes.

    Raises:
        StartError: they cannot.
    """
    if document.move is not None:
        raise StartError("a move of keys is already in progress; see memlite cluster resume")
    if count < document.replicas:
        raise StartError(f"there are already {document.replicas}; the number can only be raised")
    if document.members and count > len(document.members):
        raise StartError(
            f"{count} replicas require as many members, but there are {len(document.members)}"
        )


def _replicated(count: int, document: Document, nonce: str) -> Document:
    """Return the cluster with more replicas.

    Raises:
        StartError: items cannot be stored on more nodes.
    """
    _check_replicas(count, document)
    if document.hot_keys:
        raise StartError("a hot key was promoted in the meantime; try again")
    return document.with_replicas(count, nonce, time.time())


def _described(document: Document) -> str:
    move = document.move
    if move is None:
        return "no keys are moving"
    old, new = {one.name for one in document.members}, set(move.target)
    parts = [f"to {name}" for name in sorted(new - old)]
    parts += [f"away from {name}" for name in sorted(old - new)]
    return f"keys are already moving {' and '.join(parts)}".rstrip()  # of replicas: no parts


def _as_text(result: Result, document: Document, *, moves: bool) -> str:
    names = ", ".join(one.name for one in document.members)
    lines = _moved(result) if moves else []
    if document.replicas > 1:
        made = f"made {result.copies:,} {'copy' if result.copies == 1 else 'copies'}"
        lines.append(f"{made}; each item is stored on {_nodes(document.replicas)}")
    if result.dropped:
        were = "was" if result.dropped == 1 else "were"
        lines.append(f"{plans.items_text(result.dropped)} {were} lost: {result.reason}")
    if result.lost:
        lines.append(f"items held only by {', '.join(result.lost)} are lost")
    if result.restored:
        were = "was" if result.restored == 1 else "were"
        lines.append(f"{plans.items_text(result.restored)} {were} restored from copies")
    lines.append(f"epoch {result.epoch}, members {names}")
    return "".join(f"{line}\n" for line in lines)


def _moved(result: Result) -> list[str]:
    items = result.items
    lines = [f"moved {plans.items_text(items)}, {plans.size_text(result.bytes)}"]
    if result.earlier:
        lines[0] += f"; {result.earlier:,} of them by earlier processes"
    if result.others:
        more = f"{result.others:,} more: moved, replaced or removed by clients"
        killed = ", moved by a process that was killed" if result.killed else ""
        lines.append(f"{more}{killed}, or expired")
    return lines


def _as_json(result: Result, document: Document) -> str:
    fields = {
        "epoch": result.epoch,
        "members": [one.name for one in document.members],
        "moved": {"items": result.items, "bytes": result.bytes},
        "earlier": result.earlier,
        "others": result.others,
        "dropped": result.dropped,
        "strays": result.strays,
        "lost": list(result.lost),
        "restored": result.restored,
        "replicas": document.replicas,
        "copies": result.copies,
    }
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
