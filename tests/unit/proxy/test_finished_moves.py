"""Keys with requests in progress when a move of them between nodes ends."""

from dataclasses import replace

import pytest

from memlite.cluster.topology import Move, Phase
from memlite.proxy.finished_moves import _FULL, _MAX_WAITING
from tests.unit.proxy.moves import Scene, play, reply_to


def moving(scene: Scene) -> bytes:
    """Return a key that moves to the node that is added."""
    new = scene.after.router().index
    return next(key for key in (b"key:%d" % number for number in range(1000)) if new(key) == 3)


def answer(scene: Scene) -> None:
    """Make nodes answer the requests received so far."""
    for _ in range(len(scene.waiting)):
        _, request, receiver = scene.waiting.popleft()
        name = request.split()[0]
        receiver.answer({b"get": b"END\r\n", b"mg": b"EN\r\n"}.get(name, b"HD c1\r\n"))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_key_that_is_always_in_use_leaves_a_move_that_is_over(
    replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.before = replace(scene.before, replicas=replicas)
        scene.after = replace(scene.after, replicas=replicas)
        scene.cluster.change(scene.before)
        scene.enter(Phase.SETTLE)
        key = moving(scene)
        read = b"get %b\r\n" % key
        clients = [scene.ask(key, read)]
        await scene.run_until_asked()
        scene.cluster.change(scene.after)
        # A request is always in progress: each begins before the previous one is answered.
        for _ in range(20):
            clients.append(scene.ask(key, read))
            answer(scene)
            await scene.turn()
        assert scene.cluster.node_of(key) is scene.cluster._found(key)
        await scene.run()
        assert [client.replies for client in clients] == [[b"END\r\n"]] * len(clients)

    play(scenario, monkeypatch)


def test_changes_after_a_move_hold_the_new_copies_of_a_key_that_is_read_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.enter(Phase.SETTLE)
        key = moving(scene)
        nodes = scene.after.router().replicas(key, 2)
        scene.ask(key, b"get %b\r\n" % key)
        await scene.run_until_asked()
        scene.cluster.change(scene.after)
        scene.sent.clear()
        read = scene.ask(key, b"get %b\r\n" % key)
        change = scene.ask(key, b"set %b 0 0 1\r\nx\r\n" % key)
        await scene.run()
        assert (read.replies, change.replies) == ([b"END\r\n"], [b"STORED\r\n"])
        assert scene.holders(key) == {scene.after.nodes[nodes[1]].name}

    play(scenario, monkeypatch)


def test_waiting_requests_and_flushes_are_sent_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(scene: Scene) -> None:
        alone(scene)
        key, other = moving(scene), b"other"
        scene.ask(key, b"get %b\r\n" % key)
        await scene.run_until_asked()
        scene.cluster.change(scene.after)
        scene.sent.clear()
        clients = [scene.ask(other, b"get other\r\n")]
        assert scene.sent  # it does not wait: no request for its key is in progress
        scene.sent.clear()
        clients += [
            scene.ask(key, b"set %b 0 0 1\r\nx\r\n" % key),
            scene.flush(),
            scene.ask(other, b"set other 0 0 1\r\nx\r\n"),
            scene.ask(key, b"get %b\r\n" % key),
        ]
        assert not scene.sent
        await scene.run()
        assert [client.replies for client in clients] == [
            *([b"END\r\n"], [b"STORED\r\n"], [b"OK\r\n"], [b"STORED\r\n"], [b"END\r\n"])
        ]
        # Requests in progress continue to look for the item.
        requests = [name for _, request in scene.sent if (name := request.split()[0]) != b"mg"]
        assert requests == [b"set", *[b"flush_all"] * 4, b"set", b"get"]
        assert scene.cluster.node_of(other) is scene.cluster._found(other)

    play(scenario, monkeypatch)


def test_a_move_that_ends_after_another_is_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(scene: Scene) -> None:
        alone(scene)
        key = moving(scene)
        scene.ask(key, b"get %b\r\n" % key)
        await scene.run_until_asked()
        first, scene.waiting = scene.waiting, type(scene.waiting)()
        scene.cluster.change(scene.after)
        late = scene.ask(key, b"set %b 0 0 1\r\nx\r\n" % key)
        back = Move(Phase.SETTLE, scene.before.nodes, "1" * 32)
        scene.cluster.change(replace(scene.after, move=back))
        scene.cluster.change(scene.before)
        scene.sent.clear()
        later = scene.ask(key, b"get %b\r\n" % key)
        await scene.run()
        assert not (late.replies or later.replies or scene.sent)
        scene.waiting = first
        await scene.run()
        assert (late.replies, later.replies) == ([b"STORED\r\n"], [b"END\r\n"])
        place = scene.before.nodes[scene.before.router().index(key)].name
        sent = [(name, request.split()[0]) for name, request in scene.sent]
        assert [one for one in sent if one[1] != b"mg"] == [(place, b"set"), (place, b"get")]

    play(scenario, monkeypatch)


def test_a_flush_of_a_move_that_is_over_is_not_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(scene: Scene) -> None:
        alone(scene)
        key = moving(scene)
        scene.ask(key, b"get %b\r\n" % key)
        await scene.run_until_asked()
        flushed = scene.flush()
        before = scene.ask(b"other", b"set other 0 0 1\r\nx\r\n")
        scene.cluster.change(scene.after)
        scene.sent.clear()
        after = scene.ask(b"other", b"get other\r\n")
        assert not scene.sent
        await scene.run()
        assert flushed.replies[0].startswith(b"SERVER_ERROR ")
        assert (before.replies, after.replies) == ([b"STORED\r\n"], [b"END\r\n"])
        requests = [name for _, request in scene.sent if (name := request.split()[0]) != b"mg"]
        assert requests == [b"set", b"get"]

    play(scenario, monkeypatch)


def test_a_change_does_not_overtake_a_waiting_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With copies: a read resumes after an earlier change, and finds the key's new nodes."""

    async def scenario(scene: Scene) -> None:
        scene.enter(Phase.SETTLE)
        new, old = scene.after.router().index, scene.before.router().index
        keys = [key for key in (b"key:%d" % number for number in range(3000)) if new(key) == 3]
        key, other = keys[0], next(one for one in keys[1:] if old(one) != old(keys[0]))

        async def answer_all_but_other() -> None:
            kept = type(scene.waiting)()
            while scene.waiting:
                name, request, receiver = scene.waiting.popleft()
                if other in request.split():
                    kept.append((name, request, receiver))
                else:
                    receiver.answer(reply_to(request))
            scene.waiting = kept
            await scene.turn()

        scene.ask(other, b"get %b\r\n" % other)
        for _ in range(5):
            await answer_all_but_other()
        scene.ask(key, b"set %b 0 0 1\r\n0\r\n" % key)
        resumed = scene.ask(key, b"get %b\r\n" % key)
        await scene.turn()
        await answer_all_but_other()
        scene.cluster.change(scene.after)
        scene.ask(key, b"set %b 0 0 1\r\n1\r\n" % key)
        for _ in range(10):
            await answer_all_but_other()
        assert resumed.replies
        scene.ask(key, b"set %b 0 0 1\r\n2\r\n" % key)
        await scene.run()
        values = [request[-3:-2] for _, request in scene.sent if request.startswith(b"set ")]
        assert values == [b"1", b"2"]  # the pair stores the first value with another command

    play(scenario, monkeypatch)


def test_a_flush_does_not_overtake_a_waiting_change(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(scene: Scene) -> None:
        alone(scene)
        key = moving(scene)
        scene.ask(key, b"get %b\r\n" % key)
        await scene.run_until_asked()
        scene.flush()
        scene.cluster.change(scene.after)
        scene.sent.clear()
        change, flush = scene.ask(b"other", b"set other 0 0 1\r\nx\r\n"), scene.flush()
        await scene.run()
        assert (change.replies, flush.replies) == ([b"STORED\r\n"], [b"OK\r\n"])
        requests = [name for _, request in scene.sent if (name := request.split()[0]) != b"mg"]
        assert requests == [b"set", *[b"flush_all"] * 4]

    play(scenario, monkeypatch)


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(scene: Scene) -> None:
        alone(scene)
        key = moving(scene)
        scene.ask(key, b"get %b\r\n" % key)
        await scene.run_until_asked()
        scene.cluster.change(scene.after)
        read = b"get %b\r\n" % key
        clients = [scene.ask(key, read) for _ in range(_MAX_WAITING + 1)]
        assert clients[-1].replies == [_FULL]
        await scene.run()
        assert all(client.replies == [b"END\r\n"] for client in clients[:-1])

    play(scenario, monkeypatch)


def alone(scene: Scene) -> None:
    """Use no copies, and enter the last phase of the move."""
    scene.before = replace(scene.before, replicas=1)
    scene.after = replace(scene.after, replicas=1)
    scene.cluster.change(scene.before)
    scene.enter(Phase.SETTLE)
