"""Keys that move between nodes while clients use them through a proxy."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence

import pytest

from memlite.cluster.moving.steps import Outcome
from memlite.cluster.topology import Phase, Topology
from tests.support.moving import Mover, MovingProxy, moving_proxy, topology_of
from tests.support.servers import RunningServer, Wire, memcached_path, running

KEYS = [b"key:%d" % number for number in range(60)]
KINDS = [
    "memlite",
    pytest.param(
        "memcached", marks=pytest.mark.skipif(not memcached_path(), reason="needs memcached")
    ),
]


class Scene:
    """A node, another that is added, and a proxy."""

    def __init__(self, nodes: Sequence[RunningServer], front: MovingProxy) -> None:
        self.before, self.added = nodes
        self.front = front
        self.moving_keys = self._moving()
        self.moving_key = self.moving_keys[0]
        self.mover = Mover(self.before, self.added, self.moving_keys)

    def topology(self, phase: Phase | None) -> Topology:
        return topology_of([self.before], [self.before, self.added], phase)

    def enter(self, phase: Phase | None) -> None:
        self.front.change(self.topology(phase))

    def end(self) -> None:
        self.front.change(topology_of([self.before, self.added], [], None))

    def _moving(self) -> list[bytes]:
        """Return the keys that move to the node that is added."""
        router = self.topology(Phase.PREPARE).next_router()
        return [key for key in KEYS if router.index(key) == 1]

    def connect(self) -> Wire:
        return self.front.server.connect()


@contextlib.contextmanager
def scene(kind: str, deadline: float = 5) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(running(kind)) for _ in range(2)]
        front = stack.enter_context(moving_proxy(topology_of(nodes[:1], [], None), deadline))
        yield Scene(nodes, front)


def ask(wire: Wire, request: bytes) -> bytes:
    """Return the replies to requests."""
    wire.send(request + b"mn\r\n")
    return wire.until(b"MN\r\n")[:-4]


@pytest.mark.parametrize("kind", KINDS)
def test_items_move_as_they_are(kind: str) -> None:
    with scene(kind) as found, found.connect() as wire:
        for number, key in enumerate(KEYS):
            request = b"set %b %d 1000 5\r\nvalue\r\n" % (key, number)
            assert ask(wire, request) == b"STORED\r\n"
        uniques = {key: ask(wire, b"gets %b\r\n" % key).split()[4] for key in KEYS}

        def check() -> None:
            for number, key in enumerate(KEYS):
                words = ask(wire, b"mg %b f v t c\r\n" % key).split()
                assert words[:3] == [b"VA", b"5", b"f%d" % number]
                assert words[-1] == b"value"
                assert 900 < int(words[3][1:]) <= 1000
                if kind == "memlite":
                    assert words[4] == b"c" + uniques[key]

        for phase in (Phase.PREPARE, Phase.MOVE):
            found.enter(phase)
            check()
        moved = found.mover.run()
        assert {one.outcome for one in moved} == {Outcome.MOVED}
        assert len(moved) > 10
        check()
        found.enter(Phase.SETTLE)
        check()
        found.end()
        check()
        assert len(ask(wire, b"get %b\r\n" % b" ".join(KEYS)).split()) == 5 * len(KEYS) + 1
        stats = wire.stats()
        assert int(stats["proxy_moving_requests"]) > 0
        assert "proxy_moving_phase" not in stats


def test_clients_that_send_without_waiting_keep_their_order() -> None:
    """Each connection reads its own last write, in all phases and while they change."""
    with scene("memlite") as found:
        stopping = threading.Event()
        failures: list[bytes] = []
        rounds = [0, 0]

        def work(number: int) -> None:
            with found.connect() as wire:
                while not stopping.is_set():
                    rounds[number] += 1
                    value = b"%d-%d" % (number, rounds[number])
                    for key in KEYS[number::2][:10]:
                        change = b"set %b 0 0 %d\r\n%b\r\n" % (key, len(value), value)
                        get = b"get %b\r\n" % key
                        append = b"append %b 0 0 1\r\n!\r\n" % key
                        reply = ask(wire, change + get + append + get)
                        expected = b"".join(
                            b"%b\r\nVALUE %b 0 %d\r\n%b\r\nEND\r\n"
                            % (b"STORED", key, len(one), one)
                            for one in (value, value + b"!")
                        )
                        if reply != expected:
                            failures.append(reply)
                            return

        threads = [threading.Thread(target=work, args=[number]) for number in range(2)]
        for thread in threads:
            thread.start()

        def go_on() -> None:
            """Wait until both threads have done something in this phase."""
            until = [one + 2 for one in rounds]
            while not failures and any(
                one < other for one, other in zip(rounds, until, strict=True)
            ):
                stopping.wait(0.001)

        try:
            go_on()
            for phase in (Phase.PREPARE, Phase.MOVE):
                found.enter(phase)
                go_on()
            while any(one.outcome is not Outcome.NOTHING for one in found.mover.run()):
                pass
            found.enter(Phase.SETTLE)
            go_on()
            found.end()
            go_on()
        finally:
            stopping.set()
            for thread in threads:
                thread.join()
        assert not failures


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.MOVE, Phase.SETTLE])
def test_everything_is_flushed(phase: Phase) -> None:
    with scene("memlite") as found, found.connect() as wire:
        found.enter(phase)
        for key in KEYS:
            ask(wire, b"set %b 0 0 1\r\nx\r\n" % key)
        get = b"get %b\r\n" % b" ".join(KEYS)
        moving = b"set %b 0 0 1\r\ny\r\n" % found.moving_key
        replies = ask(wire, b"flush_all\r\n" + get + moving + b"flush_all 0\r\n" + get)
        assert replies == b"OK\r\nEND\r\nSTORED\r\nOK\r\nEND\r\n"
        assert ask(wire, b"flush_all 10\r\n") == (
            b"SERVER_ERROR a delayed flush_all is not possible while keys move\r\n"
        )


def test_nodes_are_not_listed_while_keys_move() -> None:
    with scene("memlite") as found, found.connect() as wire:
        found.enter(Phase.MOVE)
        assert b"not listed while keys move" in ask(wire, b"config get cluster\r\n")
        assert b"not listed while keys move" in ask(wire, b"config get topology\r\n")
        assert wire.stats()["proxy_moving_phase"] == "move"


@pytest.mark.parametrize("killed", [True, False])
def test_only_the_keys_of_a_failing_node_are_affected(killed: bool) -> None:
    with scene("memlite", deadline=1) as found, found.connect() as wire:
        for key in KEYS:
            ask(wire, b"set %b 0 0 1\r\nx\r\n" % key)
        found.enter(Phase.MOVE)
        found.front.until_connected()
        moved, *others = found.moving_keys
        Mover(found.before, found.added, [moved]).run()
        if killed:
            found.added.process.kill()
        else:
            found.added.pause()
        try:
            reply = ask(wire, b"get %b\r\n" % moved)
            assert reply.startswith(b"SERVER_ERROR node node-%d: " % found.added.port)
            for key in others:  # still at their old node
                assert ask(wire, b"get %b\r\n" % key).startswith(b"VALUE")
                assert ask(wire, b"append %b 0 0 1\r\ny\r\n" % key) == b"STORED\r\n"
        finally:
            if not killed:
                found.added.process.send_signal(signal.SIGCONT)


def test_keys_move_back_when_the_new_node_is_lost() -> None:
    with scene("memlite", deadline=1) as found, found.connect() as wire:
        for key in KEYS:
            ask(wire, b"set %b 0 0 1\r\nx\r\n" % key)
        found.enter(Phase.MOVE)
        moved, kept, *_ = found.moving_keys
        Mover(found.before, found.added, [moved]).run()
        found.added.process.kill()
        found.enter(Phase.BACK)
        assert ask(wire, b"get %b\r\n" % moved) == b"END\r\n"
        assert ask(wire, b"set %b 0 0 1\r\nz\r\n" % moved) == b"STORED\r\n"
        assert ask(wire, b"get %b %b\r\n" % (moved, kept)).count(b"VALUE") == 2


def test_nothing_is_forwarded_that_may_be_out_of_date() -> None:
    """A proxy that was stopped may read clients' requests before it reads the store."""
    with scene("memlite") as found, found.connect() as wire:
        assert ask(wire, b"set key:1 0 0 1\r\nx\r\n") == b"STORED\r\n"
        found.front.lease.until = 1.0
        expected = b"SERVER_ERROR not sent: the cluster's nodes may have changed meanwhile\r\n"
        assert ask(wire, b"set key:1 0 0 1\r\ny\r\n") == expected
        found.front.lease.until = float("inf")
        assert ask(wire, b"get key:1\r\n") == b"VALUE key:1 0 1\r\nx\r\nEND\r\n"
        assert wire.stats()[f"node:node-{found.before.port}:pending"] == "0"
        found.enter(Phase.MOVE)
        found.front.lease.until = 1.0
        key = found.moving_key
        assert ask(wire, b"get %b\r\n" % key).startswith(b"SERVER_ERROR ")
        found.front.lease.until = float("inf")
        expected = b"VALUE key:1 0 1\r\nx\r\nEND\r\n" if key == b"key:1" else b"END\r\n"
        assert ask(wire, b"get %b\r\n" % key) == expected
