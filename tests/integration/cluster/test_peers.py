"""Keys are placed as by libmemcached and twemproxy, which are run as black boxes."""

import contextlib
import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlite.routing import Member, make_router
from tests.support.ports import unused_port
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

WEIGHTS = (1, 3, 2)
RNG = random.Random(11)
KEYS = [b"%x" % RNG.getrandbits(RNG.randrange(4, 200)) for _ in range(2000)]
NUTCRACKER = shutil.which("nutcracker")


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[RunningServer, ...]]:
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(running("memlite")) for _ in range(3))


def check(nodes: tuple[RunningServer, ...], hash_name: str, keys: list[bytes], tag: str) -> None:
    """Check that each node has the keys that the router gives it, and no others; then flush."""
    members = [
        Member(f"127.0.0.1:{node.port}", weight)
        for node, weight in zip(nodes, WEIGHTS, strict=True)
    ]
    router = make_router(hash_name, members, tag)
    for index, node in enumerate(nodes):
        with node.connect() as wire:
            wire.send(b"".join(b"mg %b\r\n" % key for key in keys))
            found = [wire.line() == b"HD\r\n" for _ in keys]
            assert wire.ask(b"flush_all\r\n") == b"OK\r\n"
        assert found == [router.index(key) == index for key in keys]


def test_libmemcached(nodes: tuple[RunningServer, ...]) -> None:
    pylibmc = pytest.importorskip("pylibmc", reason="pylibmc is not installed")
    client = pylibmc.Client(
        [f"127.0.0.1:{node.port}:{w}" for node, w in zip(nodes, WEIGHTS, strict=True)],
        behaviors={"ketama_weighted": True},
    )
    client.set_multi(dict.fromkeys((key.decode() for key in KEYS), "x"))
    check(nodes, "ketama", KEYS, "")


@contextlib.contextmanager
def nutcracker(
    folder: Path, nodes: tuple[RunningServer, ...], hash_name: str, tag: str
) -> Iterator[Wire]:
    """Run twemproxy in front of the nodes; yield a connection to it."""
    port = unused_port()
    lines = [
        "pool:",
        f"  listen: 127.0.0.1:{port}",
        f"  hash: {hash_name}",
        "  distribution: ketama",
        *([f'  hash_tag: "{tag}"'] if tag else []),
        "  servers:",
        *(f"   - 127.0.0.1:{node.port}:{w}" for node, w in zip(nodes, WEIGHTS, strict=True)),
    ]
    configuration = folder / "nutcracker.yml"
    configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert NUTCRACKER is not None
    process = subprocess.Popen(
        [NUTCRACKER, "-c", str(configuration), "-a", "127.0.0.1", "-s", str(unused_port())],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        found: list[socket.socket] = []

        def connected() -> bool:
            assert process.poll() is None, "nutcracker has ended"
            with contextlib.suppress(ConnectionRefusedError):
                found.append(socket.create_connection(("127.0.0.1", port), 60))
            return bool(found)

        assert wait_until(connected)
        with Wire(found[0]) as wire:
            yield wire
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(NUTCRACKER is None, reason="no nutcracker (twemproxy) to compare with")
@pytest.mark.parametrize(
    ("theirs", "ours"), [("fnv1a_64", "ketama-fnv1a"), ("md5", "ketama")], ids=["fnv1a", "md5"]
)
@pytest.mark.parametrize("tag", ["", "{}"], ids=["whole", "tag"])
def test_twemproxy(
    nodes: tuple[RunningServer, ...], tmp_path: Path, theirs: str, ours: str, tag: str
) -> None:
    keys = [b"a{%b}b" % key for key in KEYS[:500]] if tag else KEYS
    keys = [*keys, "schl\u00fcssel".encode(), b"\x80\xff", b"{}", b"x}{", b"{{y}"]
    with nutcracker(tmp_path, nodes, theirs, tag) as wire:
        for start in range(0, len(keys), 100):
            some = keys[start : start + 100]
            wire.send(b"".join(b"set %b 0 0 1\r\nx\r\n" % key for key in some))
            assert [wire.line() for _ in some] == [b"STORED\r\n"] * len(some)
    check(nodes, ours, keys, tag)
