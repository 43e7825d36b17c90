"""Histories of clients of two proxies while nodes join a cluster, without moving keys.

A read may miss at any time, as in any cache. Otherwise histories are linearizable: no value is read
that is older than an acknowledged change. ``MEMLITE_TEST_MOVING_HISTORIES`` is the number
of histories recorded.
"""

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.support.clusters import Cluster, cluster
from tests.support.linearizability import Operation, check_each
from tests.support.linearizability.clients import Target, record
from tests.support.linearizability.history import EVERY_KEY, NEVER
from tests.support.waiting import wait_until

HISTORIES = int(os.environ.get("MEMLITE_TEST_MOVING_HISTORIES", "1"))
ALL = {
    "get": 12, "set": 4, "add": 3, "replace": 1, "append": 1, "prepend": 1, "incr": 2, "delete": 2,
    "gets": 2, "cas": 3,
}  # fmt: skip
KEYS = [b"%b%d" % (name, one) for name in (b"a", b"n") for one in range(30)]
NEW = "bcd"
# Proxies read the store every second, so that they disagree for half a second on average.
LEASE_SECONDS = 15.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 * HISTORIES)]


@pytest.fixture
def here() -> Iterator[Cluster]:
    with cluster(LEASE_SECONDS) as running:
        yield running


def missed(operation: Operation) -> bool:
    result = operation.result
    return operation.name in ("get", "gets") and result is not None and result.word == "MISS"


@pytest.mark.parametrize("number", range(HISTORIES))
def test_nothing_stale_is_read_while_nodes_join(here: Cluster, number: int) -> None:
    here.join("a")
    fronts = [here.proxy(), here.proxy()]
    for front in fronts:
        assert wait_until(lambda: front.stats().get("proxy_nodes_up") == "1")  # noqa: B023 - called at once
    asked = [
        Target(name, lambda port=front.port: port, KEYS, ALL, certain=False, pause=0.005)
        for name, front in zip("AB", fronts, strict=True)
    ]

    async def scenario() -> list[Operation]:
        async def join() -> None:
            for name in NEW:
                await asyncio.to_thread(here.join, name)

        joining = asyncio.ensure_future(join())
        # The last change takes effect two seconds after it was made.
        recording = await record(asked, f"{number}", 15, going_on=lambda: not joining.done())
        await joining
        assert not recording.bugs
        return recording.history

    history = asyncio.run(scenario())
    assert len(history) > 500
    lost = [Operation(f"{n} joins", "flush_all", EVERY_KEY, 0.0, NEVER, None) for n in NEW]
    violations = check_each([*lost, *(one for one in history if not missed(one))])
    assert not violations, "\n\n".join(map(str, violations))
    assert {one.name for one in here.document().members} == set("abcd")
