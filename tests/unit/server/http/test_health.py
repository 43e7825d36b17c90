"""Readiness: whether a server should receive requests."""

from memlite.core.errors import StorageError
from memlite.server.http.health import Health


class Store:
    def __init__(self) -> None:
        self.unavailable = False
        self.recovers = False
        self.probes = 0
        self.now = 0.0

    async def probe(self) -> None:
        self.probes += 1
        if not self.recovers:
            raise StorageError("unavailable")
        self.unavailable = False

    def health(self) -> Health:
        return Health(
            lambda: ("the store is unavailable",) if self.unavailable else (),
            lambda: self.unavailable,
            self.probe,
            lambda: self.now,
        )


async def test_a_store_that_works_is_not_asked() -> None:
    store = Store()
    assert await store.health().troubles() == ()
    assert store.probes == 0


async def test_a_store_that_fails_is_asked_once_a_second_until_it_works() -> None:
    store = Store()
    health = store.health()
    store.unavailable = True
    for _ in range(3):
        assert await health.troubles() == ("the store is unavailable",)
    assert store.probes == 1
    store.now, store.recovers = 1.0, True
    assert await health.troubles() == ()
    assert store.probes == 2
