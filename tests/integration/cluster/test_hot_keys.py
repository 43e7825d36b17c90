"""Hot keys through two proxies: they are spread, and nothing stale is read."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest

from memlite.cluster.hot_keys import demote, promote
from memlite.cluster.membership.document import Document, Entry
from memlite.cluster.membership.member import change_topology
from memlite.cluster.membership.url import store_of
from tests.support.linearizability import check_each
from tests.support.linearizability.clients import Recording, Target, record
from tests.support.paths import ROOT
from tests.support.program import run_forked as run
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, needs_memcached, running
from tests.support.waiting import wait_until

KINDS = [pytest.param("memcached", marks=needs_memcached), "memlite"]
KEY = b"front-page"
NAMES = ("one", "two", "three")
LEASE = 2.0
# The second proxy polls the store so rarely that its view is always out of date.
TIMES = {
    "lease": LEASE,
    "interval": 0.2,
    "settling": 3 * LEASE,
    "linger": 2 * LEASE,
    "age": LEASE,
}
LATE = TIMES | {"interval": 0.7 * LEASE}
MIX = {"get": 12, "set": 4, "add": 2, "append": 1, "incr": 2, "delete": 2}


def hasty(times: dict[str, float]) -> Sequence[str]:
    return str(ROOT / "tests" / "support" / "hasty_proxy.py"), json.dumps(times)


@contextlib.contextmanager
def members(kind: str) -> Iterator[tuple[str, list[RunningServer]]]:
    """Run nodes, and a store that lists them as members; yield its URL and the nodes."""
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(running("memlite"))
        nodes = [stack.enter_context(running(kind)) for _ in NAMES]
        url = f"memcached://127.0.0.1:{store.port}/test"
        entries = tuple(
            Entry(name, f"127.0.0.1:{node.port}", 1)
            for name, node in sorted(zip(NAMES, nodes, strict=True))
        )
        asyncio.run(change(url, lambda document: Document(document.epoch + 1, entries)))
        yield url, nodes


async def change(url: str, how: Callable[[Document], Document]) -> None:
    store = store_of(url, "")
    await store.open()
    try:
        await change_topology(store, how)
    finally:
        await store.close()


async def set_hot(url: str, keys: Sequence[bytes], *, hot: bool) -> None:
    def changed(document: Document) -> Document:
        apply = promote if hot else demote
        listed = apply(document.hot_keys, keys, document.next_epoch(0))
        return document.with_hot_keys(listed, 0)

    await change(url, changed)


def state(front: RunningServer, key: bytes = KEY) -> str:
    return front.stats().get(f"hot:{key.decode()}:state", "")


def gets(node: RunningServer) -> int:
    return int(node.stats()["cmd_get"])


def set_all(front: RunningServer, value: bytes = b"1") -> None:
    assert front.ask(b"set %b 0 0 %d\r\n%b\r\n" % (KEY, len(value), value)) == b"STORED\r\n"


def spread(front: RunningServer, nodes: Sequence[RunningServer], times: int = 300) -> list[int]:
    """Read a key repeatedly; return the number of gets at each node, the highest first."""
    before = [gets(node) for node in nodes]
    with front.connect() as wire:
        for _ in range(times):
            wire.send(b"get %b\r\n" % KEY)
            assert wire.until(b"END\r\n").startswith(b"VALUE ")
    had = [gets(node) - one for node, one in zip(nodes, before, strict=True)]
    return sorted(had, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_reads_are_spread(kind: str) -> None:
    with members(kind) as (url, nodes), proxy(url, program=hasty(TIMES)) as front:
        set_all(front)
        assert spread(front, nodes) == [300, 0, 0]
        assert run("cluster", "promote", KEY.decode(), "--cluster", url).returncode == 0
        assert wait_until(lambda: state(front) == "waiting")
        assert front.ask(b"config get cluster\r\n").startswith(b"SERVER_ERROR nodes are not listed")
        assert spread(front, nodes)[1:] == [0, 0]
        assert wait_until(lambda: state(front) == "spread")
        had = spread(front, nodes)
        assert min(had) >= 90
        assert int(front.stats()["hot:front-page:nodes"]) == 3
        set_all(front, b"2")
        with front.connect() as wire:
            for _ in range(6):
                assert wire.ask(b"mg %b v\r\n" % KEY) == b"VA 1\r\n"
                assert wire.ask(b"") == b"2\r\n"
        shown = run("cluster", "show", url).stdout
        assert "hot key front-page, promoted in epoch" in shown
        assert run("cluster", "demote", KEY.decode(), "--cluster", url).returncode == 0
        assert wait_until(lambda: state(front) == "demoted")
        assert spread(front, nodes) == [300, 0, 0]
        assert wait_until(lambda: state(front) == "")
        assert wait_until(
            lambda: json.loads(run("cluster", "show", url, "--json").stdout)["hot_keys"] == []
        )


def load(front: RunningServer, seed: int, hot: int = 1) -> None:
    """Read keys whose frequency falls with their rank (Zipf), KEY the first of them."""
    random = Random(seed)
    names = [KEY] + [b"article:%d" % number for number in range(2, 200)]
    weights = [(hot if rank == 1 else 1) / rank for rank in range(1, 200)]
    with front.connect() as wire:
        for _ in range(20):
            chosen = random.choices(names, weights, k=400)
            wire.send(b"".join(b"mg %b\r\n" % name for name in chosen))
            wire.exactly(len(chosen) * len(b"HD\r\n"))  # or EN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "own"),
    [
        pytest.param("memlite", True, id="own-memlite"),
        pytest.param("memcached", False, id="cluster-memcached", marks=needs_memcached),
    ],
)
def test_automatic_promotion(kind: str, own: bool) -> None:
    """Nodes report reads or the proxy samples them; the list is the store's or the proxy's."""
    options = ("--promote-hot-keys", "30")
    with (
        members(kind) as (url, nodes),
        proxy(nodes if own else url, *options, program=hasty(TIMES)) as front,
    ):
        set_all(front)

        def promoted() -> bool:
            load(front, 1)
            return state(front) == "spread"

        assert wait_until(promoted, every=0.5)
        assert min(spread(front, nodes)) >= 90
        hot = {name for name in front.stats() if name.endswith(":state") and name[:4] == "hot:"}
        assert "hot:front-page:state" in hot
        assert len(hot) < 6
        if not own:
            shown = json.loads(run("cluster", "show", url, "--json").stdout)["hot_keys"]
            assert any(one["key"] == "front-page" for one in shown)

        def demoted() -> bool:
            load(front, 2, hot=0)
            return state(front) in ("demoted", "")

        assert wait_until(demoted, every=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_is_changed_often_is_not_promoted(kind: str) -> None:
    options = ("--promote-hot-keys", "30")
    with members(kind) as (url, _), proxy(url, *options, program=hasty(TIMES)) as front:
        with front.connect() as wire:
            for _ in range(40):
                wire.send((b"incr %b 1\r\n" % KEY + b"mg front\r\n" * 5) * 100)
                for _ in range(600):
                    wire.line()
        assert wait_until(lambda: state(front, b"front") == "spread")
        assert not state(front)


async def with_promotions(
    url: str, fronts: Sequence[RunningServer], keys: Sequence[bytes], seed: str
) -> Recording:
    """Record while keys are promoted, demoted, promoted again and demoted."""
    targets = [
        Target(name, lambda port=front.port: port, keys, MIX, certain=False, pause=0.03)  # type: ignore[misc]
        for name, front in zip("AB", fronts, strict=True)
    ]

    async def promote_and_demote() -> None:
        # Demoted before it is read, when it is, and promoted again while it is still held.
        hot = False
        for seconds in (0.5 * LEASE, 0.5 * LEASE, 4.5 * LEASE, 0.7 * LEASE, 4.5 * LEASE, 2 * LEASE):
            hot = not hot
            await set_hot(url, keys, hot=hot)
            await asyncio.sleep(seconds)

    changing = asyncio.ensure_future(promote_and_demote())
    try:
        return await record(targets, seed, 12.7 * LEASE)
    finally:
        await changing


def violations(url: str, fronts: Sequence[RunningServer], number: int) -> list[str]:
    keys = [b"%b%d" % (name, number) for name in (b"a", b"n")]
    recording = asyncio.run(with_promotions(url, fronts, keys, str(number)))
    assert not recording.bugs
    return [str(one) for one in check_each(recording.history)]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS)
def test_histories_are_linearizable(kind: str) -> None:
    with (
        members(kind) as (url, _),
        proxy(url, program=hasty(TIMES)) as first,
        proxy(url, program=hasty(LATE)) as second,
    ):
        assert not violations(url, [first, second], 1)
        assert all(int(front.stats()["proxy_replica_reads"]) > 50 for front in (first, second))
