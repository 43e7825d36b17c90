"""Changes of keys that move between nodes and have copies, while one of the nodes is down."""

import pytest

from memlite.cluster.topology import Phase
from tests.unit.proxy.moves import Scene, play

CASES = [
    (Phase.PREPARE, "source", True),
    (Phase.PREPARE, "destination", False),
    (Phase.MOVE, "source", True),
    (Phase.MOVE, "destination", True),
    (Phase.SETTLE, "source", False),
    (Phase.SETTLE, "destination", True),
    (Phase.BACK, "source", True),
    (Phase.BACK, "destination", False),
]


def moving_key(scene: Scene) -> tuple[bytes, dict[str, str]]:
    """Return a key, and the names of the nodes between which it moves."""
    old, new = scene.before.router().index, scene.after.router().index
    keys = (b"key:%d" % number for number in range(1000))
    key = next(key for key in keys if new(key) == 3)
    return key, {
        "source": scene.before.nodes[old(key)].name,
        "destination": scene.after.nodes[3].name,
    }


@pytest.mark.parametrize(("phase", "which", "refused"), CASES)
def test_a_change_that_is_refused_leaves_copies_alone(
    phase: Phase, which: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.enter(Phase.PREPARE)
        key, names = moving_key(scene)
        scene.ask(key, b"get %b\r\n" % key)
        await scene.run()
        scene.enter(phase)
        scene.sent.clear()
        scene.fail(names[which])
        change = scene.ask(key, b"set %b 0 0 1\r\nx\r\n" % key)
        if refused:
            assert change.replies == [b"SERVER_ERROR node %b: down\r\n" % names[which].encode()]
            assert not scene.sent
        else:
            assert not change.replies
            assert scene.holders(key)
        assert scene.cluster.replicated.idle == refused

    play(scenario, monkeypatch)


def test_a_key_is_read_while_its_new_node_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.enter(Phase.MOVE)
        key, names = moving_key(scene)
        scene.fail(names["destination"])
        scene.items[names["source"]] = b"VA 1 f0 t-1 c5 k%b h0 l0\r\nx\r\n" % key
        read = scene.ask(key, b"get %b\r\n" % key)
        await scene.run()
        assert read.replies == [b"VALUE %b 0 1\r\nx\r\nEND\r\n" % key]

    play(scenario, monkeypatch)
