"""Checks of the commands that move keys, before anything changes."""

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from memlite.cluster.hot_keys import HotKey
from memlite.cluster.membership.document import TOPOLOGY, Document, Entry
from memlite.cluster.membership.store import Stored
from memlite.cluster.mover import command
from memlite.cluster.mover.command import Request, run
from memlite.cluster.mover.mover import Mover, Result
from memlite.cluster.mover.permit import Permit
from memlite.cluster.node_access import NodeAccess
from memlite.cluster.topology import Node
from memlite.core.errors import StartError

MEMBERS = (Entry("a", "h:1", 5), Entry("b", "h:2", 0, leased=False), Entry("c", "h:3", 5))
MORE = (
    "1 more: moved, replaced or removed by clients, moved by a process that was killed, or expired"
)
HOT = (HotKey(b"hot", 5),)


class ReadStore:
    """A store that must not be changed.

    Attributes:
        document: the stored document.
        asked: the names of the nodes that were checked.
        receiving: the names of the nodes that receive items.
        problem: the error of the check; empty if there is none.
    """

    def __init__(self) -> None:
        self.document = Document(5, MEMBERS, hot_keys=HOT)
        self.asked: list[str] = []
        self.receiving: list[str] = []
        self.problem = ""

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def read(self, name: str) -> Stored | None:
        return Stored(self.document.encode(), None) if name == TOPOLOGY else None

    async def write(self, name: str, data: bytes, replacing: Stored | None) -> None:
        raise AssertionError(f"{name} is written")

    async def delete(self, name: str, stored: Stored) -> None:
        raise AssertionError(f"{name} is deleted")

    async def check_nodes(
        self, nodes: Sequence[Node], receiving: Sequence[str], _access: NodeAccess
    ) -> list[str]:
        self.asked, self.receiving = [node.name for node in nodes], list(receiving)
        if self.problem:
            raise StartError(self.problem)
        return []

    def run(
        self,
        action: str,
        *nodes: str,
        replicas: int = 1,
        lost: Sequence[str] = (),
        dry_run: bool = False,
    ) -> None:
        request = Request(action, "", NodeAccess(), nodes, lost=tuple(lost))
        run(dataclasses.replace(request, replicas=replicas, dry_run=dry_run))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> ReadStore:
    made = ReadStore()
    monkeypatch.setattr(command, "store_of", lambda _url, _label: made)
    monkeypatch.setattr(command, "check_nodes", made.check_nodes)
    return made


@pytest.mark.parametrize("problem", ["runs with -C", "refuses to list its items (-X)"])
def test_replicas_are_refused_if_a_node_is_unsuitable(store: ReadStore, problem: str) -> None:
    store.problem = problem
    with pytest.raises(StartError, match="cluster replicas: ") as refused:
        store.run("replicas", replicas=2)
    assert problem in str(refused.value)
    assert store.asked == store.receiving == ["a", "b", "c"]
    with pytest.raises(StartError):
        store.run("replicas", replicas=2, lost=["b"])
    assert store.asked == ["a", "c"], "a lost node cannot be checked"


def test_the_first_nodes_of_a_cluster_with_replicas_are_checked(store: ReadStore) -> None:
    store.document = Document(replicas=2)
    store.problem = "runs with -C"
    with pytest.raises(StartError, match="runs with -C"):
        store.run("add", "x=h:1", "y=h:2")
    assert store.asked == ["x", "y"]


@pytest.mark.parametrize(
    ("present", "wanted", "message"),
    [
        (1, 4, "4 replicas require as many members, but there are 3"),
        (3, 2, "there are already 3; the number can only be raised"),
    ],
)
def test_the_number_of_replicas_is_checked_first(
    store: ReadStore, present: int, wanted: int, message: str
) -> None:
    store.document = Document(5, MEMBERS, replicas=present, hot_keys=HOT)
    with pytest.raises(StartError, match=message):
        store.run("replicas", replicas=wanted)
    assert not store.asked


@pytest.mark.parametrize("action", ["drain", "remove"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_at_least_as_many_nodes_as_replicas_must_be_left(
    store: ReadStore, action: str, dry_run: bool
) -> None:
    store.document = Document(5, MEMBERS, replicas=2)
    message = "each item is stored on 2 nodes, but only 1 node would be left; add others first"
    with pytest.raises(StartError, match=message):
        store.run(action, "a", "c", dry_run=dry_run)
    assert not store.asked


def test_a_node_that_is_gone_is_removed_whatever_is_left(store: ReadStore) -> None:
    store.document = Document(5, MEMBERS[:2], replicas=2)
    store.problem = "refused by the check of the other nodes"
    with pytest.raises(StartError, match=store.problem):
        store.run("remove", "b", lost=["b"])


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (Result(copies=1234, epoch=7), "made 1,234 copies; each item is stored on 2 nodes"),
        (Result(copies=1, epoch=7), "made 1 copy; each item is stored on 2 nodes"),
    ],
)
@pytest.mark.parametrize("action", ["replicas", "drain"])
def test_copies_are_counted(
    store: ReadStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    made: Result,
    shown: str,
    action: str,
) -> None:
    document = Document(5, MEMBERS, replicas=2)
    target = ["a", "b", "c"] if action == "replicas" else ["a", "b"]
    store.document = document.moving_to(target, "0" * 32, 5)

    async def moved(_self: Mover, _document: Document) -> Result:
        store.document = document
        return made

    async def nothing(*_arguments: object) -> None:
        pass

    monkeypatch.setattr(Mover, "run", moved)
    monkeypatch.setattr(Permit, "acquire", nothing)
    monkeypatch.setattr(Permit, "hold", forever)
    monkeypatch.setattr(Permit, "release", nothing)
    if action == "replicas":
        store.run("replicas", replicas=2)
        lines = [shown, "epoch 7, members a, b, c"]
    else:
        store.run("drain", "c")
        lines = ["moved 0 items, 0 B", shown, "epoch 7, members a, b, c"]
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(
    ("made", "lines"),
    [
        (Result(items=1, bytes=1), ["moved 1 item, 1 B"]),
        (
            Result(items=2000, bytes=4096, earlier=500, others=7),
            [
                "moved 2,000 items, 4.0 KiB; 500 of them by earlier processes",
                "7 more: moved, replaced or removed by clients, or expired",
            ],
        ),
        (
            Result(items=2, dropped=1, reason="too large", others=1, killed=True),
            [
                "moved 2 items, 0 B",
                MORE,
                "1 item was lost: too large",
            ],
        ),
    ],
)
def test_the_result_counts_items_moved_by_all_processes(made: Result, lines: list[str]) -> None:
    text = command._as_text(made, Document(7, MEMBERS), moves=True)
    assert text.splitlines()[:-1] == lines


async def forever(*_arguments: object) -> None:
    await asyncio.Event().wait()


def test_the_number_of_replicas_stays_while_keys_move(store: ReadStore) -> None:
    store.document = Document(5, MEMBERS).moving_to(["a", "b"], "0" * 32, 5)
    with pytest.raises(StartError, match="keys is already in progress"):
        store.run("replicas", replicas=2)
    assert not store.asked


@pytest.mark.parametrize(("count", "nodes"), [(1, "1 node"), (2, "2 nodes")])
def test_raising_replicas_to_the_present_number_changes_nothing(
    store: ReadStore, capsys: pytest.CaptureFixture[str], count: int, nodes: str
) -> None:
    store.document = Document(5, MEMBERS, replicas=count)
    store.run("replicas", replicas=count)
    assert capsys.readouterr().out == f"each item is already stored on {nodes}\n"
