"""A follower passes on changes, and reports when its view may be out of date."""

import asyncio

import pytest

from memlite.cluster.membership.document import Document, Entry
from memlite.cluster.membership.follower import Follower
from memlite.cluster.membership.lease import LEASE
from memlite.cluster.membership.store import Stored, StoreUnavailableError


class Store:
    """A store that holds one document, or is unavailable."""

    def __init__(self) -> None:
        self.document = Document(7, (Entry("one", "10.0.0.1:11211", 1),))
        self.away = False

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def read(self, _name: str) -> Stored | None:
        if self.away:
            raise StoreUnavailableError("away")
        return Stored(self.document.encode(), None)

    async def write(self, name: str, data: bytes, replacing: Stored | None) -> None:
        raise NotImplementedError


class Fixture:
    """A follower on a clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.store = Store()
        self.said: list[object] = []
        self.follower = Follower(
            self.store,
            lambda _topology, epoch: self.said.append(epoch),
            self.said.append,
            clock=lambda: self.now,
        )

    def step(self, seconds: float) -> list[object]:
        """Let time pass, read once, and return the reports."""
        self.now += seconds
        self.said.clear()
        asyncio.run(self.follower.step())
        return list(self.said)


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


def test_changes_are_passed_on_once(fixture: Fixture) -> None:
    assert fixture.step(1) == [7]
    assert fixture.step(1) == []
    fixture.store.document = Document(9, fixture.store.document.members)
    assert fixture.step(1) == [9]


def test_a_store_that_is_unavailable_for_a_lease(fixture: Fixture) -> None:
    assert fixture.step(1) == [7]
    fixture.store.away = True
    assert fixture.step(LEASE - 0.1) == []
    (reason,) = fixture.step(0.1)
    assert "cannot be read: away" in str(reason)
    fixture.store.away = False
    assert fixture.step(1)[-1] == 7


def test_a_follower_that_was_stopped_starts_over(fixture: Fixture) -> None:
    """It may have missed changes, even if the document looks unchanged."""
    assert fixture.step(1) == [7]
    assert fixture.step(LEASE - 0.1) == []
    assert fixture.step(LEASE) == ["the state of the cluster was not read in time", 7]
