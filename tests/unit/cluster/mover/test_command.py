"""What the commands that move keys refuse before anything changes."""

from collections.abc import Sequence

import pytest

from memlite.cluster.hot_keys import HotKey
from memlite.cluster.membership.document import TOPOLOGY, Document, Entry
from memlite.cluster.membership.store import Stored
from memlite.cluster.mover import command
from memlite.cluster.mover.command import Request, run
from memlite.cluster.node_access import NodeAccess
from memlite.cluster.topology import Node
from memlite.core.errors import StartError

MEMBERS = (Entry("a", "h:1", 5), Entry("b", "h:2", 0, leased=False), Entry("c", "h:3", 5))
HOT = (HotKey(b"hot", 5),)


class ReadStore:
    """A store that nobody may change.

    Attributes:
        document: what it holds.
        asked: the names of the nodes that were checked.
        problem: what is wrong with them.
    """

    def __init__(self) -> None:
        self.document = Document(5, MEMBERS, hot_keys=HOT)
        self.asked: list[str] = []
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
        self.asked = [node.name for node in nodes]
        assert self.asked == list(receiving)
        if self.problem:
            raise StartError(self.problem)
        return []

    def run(self, action: str, *nodes: str, replicas: int = 1, lost: Sequence[str] = ()) -> None:
        run(Request(action, "", NodeAccess(), nodes, lost=tuple(lost), replicas=replicas))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> ReadStore:
    made = ReadStore()
    monkeypatch.setattr(command, "store_of", lambda _url, _label: made)
    monkeypatch.setattr(command, "check_nodes", made.check_nodes)
    return made


@pytest.mark.parametrize("problem", ["runs with -C", "refuses to list its items (-X)"])
def test_no_copies_are_made_at_nodes_that_cannot_have_them(store: ReadStore, problem: str) -> None:
    store.problem = problem
    with pytest.raises(StartError, match="cluster replicas: ") as refused:
        store.run("replicas", replicas=2)
    assert problem in str(refused.value)
    assert store.asked == ["a", "b", "c"]
    with pytest.raises(StartError):
        store.run("replicas", replicas=2, lost=["b"])
    assert store.asked == ["a", "c"], "nobody can ask a node that is gone"


def test_the_first_nodes_of_a_cluster_with_replicas_are_checked(store: ReadStore) -> None:
    store.document = Document(replicas=2)
    store.problem = "runs with -C"
    with pytest.raises(StartError, match="runs with -C"):
        store.run("add", "x=h:1", "y=h:2")
    assert store.asked == ["x", "y"]


@pytest.mark.parametrize(
    ("present", "wanted", "message"),
    [
        (1, 4, "4 replicas need as many members, not 3"),
        (3, 2, "there are 3 already; they can only become more"),
    ],
)
def test_the_number_of_replicas_is_checked_first(
    store: ReadStore, present: int, wanted: int, message: str
) -> None:
    store.document = Document(5, MEMBERS, replicas=present, hot_keys=HOT)
    with pytest.raises(StartError, match=message):
        store.run("replicas", replicas=wanted)
    assert not store.asked


def test_the_number_of_replicas_stays_while_keys_move(store: ReadStore) -> None:
    store.document = Document(5, MEMBERS).moving_to(["a", "b"], "0" * 32, 5)
    with pytest.raises(StartError, match="keys are moving already"):
        store.run("replicas", replicas=2)
    assert not store.asked


@pytest.mark.parametrize(("count", "nodes"), [(1, "1 node"), (2, "2 nodes")])
def test_there_may_be_as_many_replicas_already(
    store: ReadStore, capsys: pytest.CaptureFixture[str], count: int, nodes: str
) -> None:
    store.document = Document(5, MEMBERS, replicas=count)
    store.run("replicas", replicas=count)
    assert capsys.readouterr().out == f"items are on {nodes} already\n"
