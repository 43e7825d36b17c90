"""``memlite cluster add``, ``drain`` and so on move keys between real nodes."""

import json
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from memlite.routing import Router
from tests.support.certificates import Authority, client_context
from tests.support.clusters import Cluster, cluster
from tests.support.servers import RunningServer, needs_memcached
from tests.support.waiting import wait_until

KEYS = [b"key:%d" % number for number in range(400)]
KINDS = ["memlite", pytest.param("memcached", marks=needs_memcached)]
pytestmark = pytest.mark.slow


@pytest.fixture
def here() -> Iterator[Cluster]:
    with cluster(3) as running:
        yield running


def add(here: Cluster, kind: str, names: str) -> None:
    """Add the first nodes to the cluster."""
    added = here.run("add", *(here.start(name, kind) for name in names))
    assert added.returncode == 0, added.stderr


def router_of(here: Cluster) -> tuple[Router, list[str]]:
    topology = here.document().topology()
    assert topology is not None
    return topology.router(), [node.name for node in topology.nodes]


def owners(here: Cluster) -> dict[bytes, RunningServer]:
    router, names = router_of(here)
    return {key: here.nodes[names[router.index(key)]] for key in KEYS}


def fill(here: Cluster) -> dict[bytes, bytes]:
    """Store all keys at their nodes; return the answers to reads."""
    for number, (key, node) in enumerate(owners(here).items()):
        with node.connect() as wire:
            flags = b"F%d%b" % (number, b" T1000" * (number % 2))
            assert wire.ask(b"ms %b 8 %b\r\n%08d\r\n" % (key, flags, number)) == b"HD\r\n"
    return read(here)


def read(here: Cluster) -> dict[bytes, bytes]:
    """Return the answers of the keys' nodes, without remaining times."""
    answers = {}
    for key, node in owners(here).items():
        with node.connect() as wire:
            head = wire.ask(b"mg %b v f t c\r\n" % key).replace(b" t-1", b" ever")
            if head.startswith(b"VA"):
                head = b" ".join(w for w in head.split() if w[:1] != b"t") + wire.line()
            answers[key] = head
    return answers


def uniques_dropped(answers: dict[bytes, bytes]) -> dict[bytes, list[bytes]]:
    return {key: [w for w in one.split() if w[:1] != b"c"] for key, one in answers.items()}


def knows_uniques(here: Cluster, names: Sequence[str]) -> bool:
    return all(here.nodes[name].ask(b"mg x E1\r\n").startswith(b"EN") for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_items_move_as_they_are(here: Cluster, kind: str) -> None:
    add(here, kind, "abc")
    before = fill(here)
    new = here.start("d", kind)
    planned = here.run("add", new, "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    moves = json.loads(planned.stdout)["moved"]["items"]
    assert moves > 20
    assert here.places() == {"a": "member", "b": "member", "c": "member"}
    added = here.run("add", new, "--json")
    assert added.returncode == 0, added.stderr
    assert json.loads(added.stdout)["moved"] == {"items": moves, "bytes": 8 * moves}
    assert here.items("d") == moves
    assert sum(map(here.items, "abcd")) == len(KEYS)
    after = read(here)
    if knows_uniques(here, "abcd"):
        assert after == before
    assert uniques_dropped(after) == uniques_dropped(before)
    removed = here.run("remove", "a", "b")
    assert removed.returncode == 0, removed.stderr
    assert here.places() == {"c": "member", "d": "member"}
    assert here.items("a") == here.items("b") == 0
    assert uniques_dropped(read(here)) == uniques_dropped(before)


def test_nodes_with_passwords_and_tls(here: Cluster, tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("node")
    users, password, wrong = (tmp_path / name for name in ("users", "password", "wrong"))
    for path, text in ((users, "ada:pwd\n"), (password, "pwd\n"), (wrong, "no\n")):
        path.write_text(text)
        path.chmod(0o600)
    tls = ["--node-tls", "--node-tls-ca-cert", str(issued.ca)]
    access = [*tls, "--node-user", "ada", "--node-password-file", str(password)]
    a, b = (
        here.start(name, "memlite", "-Y", str(users), *issued.flags, tls=client_context(issued.ca))
        for name in "ab"
    )
    added = here.run("add", a, *access)
    assert added.returncode == 0, added.stderr
    with here.proxy(*access, "--deadline", "3").connect() as wire:
        for key in KEYS:
            assert wire.ask(b"set %b 0 0 1\r\nx\r\n" % key) == b"STORED\r\n"
        for options, reason in (
            ([], "connection closed"),
            (tls, "CLIENT_ERROR unauthenticated"),
            ([*tls, "--node-user", "ada", "--node-password-file", str(wrong)], "authentication"),
            (access[3:], "connection closed"),
        ):
            refused = here.run("add", b, *options)
            assert refused.returncode == 71
            assert re.search(f"memlite: cluster add: node [ab] at .*: {reason}", refused.stderr)
        planned = here.run("plan", "--add", b, *access, "--json")
        assert planned.returncode == 0, planned.stderr
        moves = json.loads(planned.stdout)["moved"]["items"]
        added = here.run("add", b, *access, "--json")
        assert added.returncode == 0, added.stderr
        assert json.loads(added.stdout)["moved"]["items"] == moves > 100
        drained = here.run("drain", "a", *access)
        assert drained.returncode == 0, drained.stderr
        wire.send(b"get %b\r\n" % b" ".join(KEYS))
        assert wire.until(b"END\r\n").count(b"VALUE") == len(KEYS)


def listed(node: RunningServer) -> bool:
    """Return whether, as far as the node knows, it is a member or keys are moving."""
    with node.connect() as wire:
        if not wire.ask(b"config get cluster\r\n").startswith(b"CONFIG "):
            return True
        return f"|{node.port}".encode() in wire.until(b"END\r\n")


def test_nodes_that_register_themselves(here: Cluster) -> None:
    for name in "ab":
        here.join(name)
    here.join("c", "--spare")
    assert here.places() == {"a": "member", "b": "member", "c": "spare"}
    before = fill(here)
    assert here.run("add", "c").returncode == 0
    assert here.places() == {"a": "member", "b": "member", "c": "member"}
    assert read(here) == before
    again = here.run("add", "c")
    assert again.returncode == 0
    assert "moved 0 items" in again.stdout
    assert here.run("drain", "a").returncode == 0
    assert here.places() == {"a": "spare", "b": "member", "c": "member"}
    assert read(here) == before
    # A node that knows that it was drained stays a spare, also when it has to join again.
    assert wait_until(lambda: not listed(here.nodes["a"]), 60)
    here.nodes["a"].pause()
    try:
        assert wait_until(lambda: "a" not in here.places(), 60)
    finally:
        here.nodes["a"].process.send_signal(signal.SIGCONT)
    assert wait_until(lambda: here.places().get("a") == "spare", 60)
    removed = here.run("remove", "b")
    assert "b remains registered as a spare until it stops\n" in removed.stderr
    here.nodes["b"].stop()
    assert here.places() == {"a": "spare", "c": "member"}
    assert read(here) == before


def test_old_items_do_not_come_back(here: Cluster) -> None:
    """A node that is added has old items under keys of other nodes."""
    add(here, "memlite", "ab")
    before = fill(here)
    new = here.start("c", "memlite")
    for key in KEYS:
        assert here.nodes["c"].ask(b"set %b 0 0 3\r\nold\r\n" % key) == b"STORED\r\n"
    for key in KEYS[::3]:
        owners(here)[key].ask(b"delete %b\r\n" % key)
        before[key] = b"EN\r\n"
    added = here.run("add", new, "--json")
    assert json.loads(added.stdout)["strays"] > 20
    assert read(here) == before


def test_the_new_node_does_not_reuse_the_cas_unique_of_a_deleted_key(here: Cluster) -> None:
    add(here, "memlite", "a")
    with here.nodes["a"].connect() as wire:
        for key in KEYS:
            known = int(wire.ask(b"ms %b 1 c\r\nx\r\n" % key).removeprefix(b"HD c"))
            assert wire.ask(b"md %b\r\n" % key) == b"HD\r\n"
    added = here.run("add", here.start("b", "memlite"))
    assert added.returncode == 0, added.stderr
    with here.nodes["b"].connect() as wire:
        for key in KEYS:
            unique = int(wire.ask(b"ms %b 1 c\r\nx\r\n" % key).removeprefix(b"HD c"))
            assert unique > known
    assert here.nodes["b"].stats()["curr_items"] == str(len(KEYS))


@pytest.mark.parametrize("phase", ["prepare", "move", "settle"])
def test_a_mover_that_was_killed_is_resumed(here: Cluster, phase: str) -> None:
    add(here, "memlite", "ab")
    before = fill(here)
    command = ("add", here.start("c", "memlite"))
    planned = json.loads(here.run(*command, "--dry-run", "--json").stdout)["moved"]["items"]
    mover = here.begin(*command, "--rate", "20" if phase == "move" else "100")
    here.wait_for_phase(phase)
    if phase == "move":
        assert wait_until(lambda: here.show()["move"]["mover"]["items"] > 0)
    mover.kill()
    mover.wait()
    other = here.run("add", here.start("d", "memlite"))
    assert other.returncode == 71
    assert "cluster add: keys are already moving to c; see memlite cluster resume\n" in other.stderr
    shown = here.show()
    assert shown["move"]["phase"] == phase
    assert shown["move"]["target"] == ["a", "b", "c"]
    again = here.run(*(command if phase == "move" else ("resume",)), "--json")
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout)
    assert result["moved"]["items"] + result["others"] == planned, "both processes' are counted"
    assert (result["earlier"] > 0) >= (phase == "move")
    assert result["moved"]["bytes"] == 8 * result["moved"]["items"]
    assert "waiting for the lease of process" in again.stderr
    assert here.places() == {"a": "member", "b": "member", "c": "member"}
    assert read(here) == before
    assert sum(map(here.items, "abc")) == len(KEYS)


def test_one_mover_at_a_time(here: Cluster) -> None:
    add(here, "memlite", "ab")
    fill(here)
    here.begin("add", here.start("c", "memlite"))
    here.wait_for_phase("prepare")
    second = here.run("resume")
    assert second.returncode == 71
    assert second.stderr.splitlines()[-1].startswith(
        "memlite: cluster resume: keys are already being moved by process "
    )


def test_a_move_is_cancelled_before_items_have_moved(here: Cluster) -> None:
    add(here, "memlite", "ab")
    before = fill(here)
    mover = here.begin("add", here.start("c", "memlite"))
    here.wait_for_phase("prepare")
    mover.kill()
    mover.wait()
    cancelled = here.run("cancel")
    assert cancelled.returncode == 0, cancelled.stderr
    assert here.places() == {"a": "member", "b": "member", "c": "spare"}
    assert read(here) == before
    assert "no keys are moving" in here.run("cancel").stdout


@pytest.mark.parametrize("leased", [True, False])
def test_a_move_is_reversed_when_the_new_node_is_gone(here: Cluster, leased: bool) -> None:
    for name in "ab":
        here.join(name)
    before = fill(here)
    if leased:
        here.join("c", "--spare")
        new = "c"
    else:
        new = here.start("c", "memlite")
    mover = here.begin("add", new, "--rate", "50")
    here.wait_for_phase("move")
    assert wait_until(lambda: here.items("a") + here.items("b") < len(KEYS))
    mover.kill()
    mover.wait()
    refused = here.run("cancel")
    assert refused.returncode == 71
    assert "items have moved to c, which is considered alive" in refused.stderr
    here.nodes["c"].stop(signal.SIGKILL)
    back = here.run("cancel", *([] if leased else ["--lost", "c"]))
    assert back.returncode == 0, back.stderr
    assert here.phase == ""
    assert not here.document().entry("c") or here.places()["c"] == "spare"
    after = read(here)
    kept = {key: answer for key, answer in after.items() if answer != b"EN\r\n"}
    assert kept.items() <= before.items()
    assert len(kept) < len(before)


def test_a_source_that_is_lost(here: Cluster) -> None:
    """Its items are lost, and the move goes on; the node is removed afterwards."""
    for name in "abc":
        here.join(name)
    here.join("d", "--spare")
    before = fill(here)
    lost = {key for key, node in owners(here).items() if node is here.nodes["b"]}
    mover = here.begin("add", "d")
    here.wait_for_phase("move")
    here.nodes["b"].stop(signal.SIGKILL)
    assert mover.wait(60) == 0
    assert here.places()["d"] == "member"
    assert wait_until(lambda: "b" not in here.places(), 60)
    after = read(here)
    assert {key: after[key] for key in KEYS if key not in lost} == {
        key: before[key] for key in KEYS if key not in lost
    }


def test_a_destination_that_comes_back(here: Cluster) -> None:
    for name in "ab":
        here.join(name)
    node = here.join("c", "--spare")
    before = fill(here)
    mover = here.begin("add", "c", "--rate", "50")
    here.wait_for_phase("move")
    assert wait_until(lambda: here.items("c") > 0)
    node.stop(signal.SIGKILL)
    here.join("c", "--advertise", f"127.0.0.1:{node.port}", "-p", str(node.port))
    assert mover.wait(60) == 0
    assert here.places() == {"a": "member", "b": "member", "c": "member"}
    after = read(here)
    kept = {key: answer for key, answer in after.items() if answer != b"EN\r\n"}
    assert kept.items() <= before.items()
    assert len(kept) > len(KEYS) / 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("name", "bc")
def test_a_node_that_goes_before_items_have_moved_ends_the_move(
    here: Cluster, name: str, number: signal.Signals
) -> None:
    for name in "ab":
        here.join(name)
    here.join("c", "--spare")
    mover = here.begin("add", "c")
    here.wait_for_phase("prepare")
    mover.kill()
    mover.wait()
    here.nodes[name].stop(number)
    assert wait_until(lambda: name not in here.places(), 60)
    assert here.phase == ""
    left = {"a": "member", "b": "member", "c": "spare"}
    del left[name]
    assert here.places() == left


def test_a_node_that_joins_waits_until_keys_have_moved(here: Cluster) -> None:
    for name in "ab":
        here.join(name)
    mover = here.begin("drain", "a")
    here.wait_for_phase("prepare")
    node = here.join("c")
    assert mover.wait(60) == 0
    text = node.log.read_text()
    assert "waiting to join as c until the move of keys has finished; not serving clients" in text
    assert here.places() == {"a": "spare", "b": "member", "c": "member"}


def test_unsuitable_nodes_are_refused_before_anything_changes(here: Cluster) -> None:
    add(here, "memlite", "ab")
    fill(here)
    before = here.document()
    without_uniques, silent = here.start("c", "memlite", "-C"), here.start("d", "memlite", "-X")
    small, gone = here.start("e", "memlite", "-I", "512k"), here.start("f", "memlite")
    here.nodes["f"].stop()
    for new, message in {
        without_uniques: "runs with -C; moving keys requires cas uniques",
        silent: "refuses to list its items (-X)",
        small: "accepts items of up to 524,288 bytes (-I); other nodes accept up to",
        gone: "Connection refused",
    }.items():
        refused = here.run("add", new)
        assert refused.returncode == 71
        error = refused.stderr.splitlines()[-1]
        assert error.startswith(f"memlite: cluster add: node {new[0]} at 127.0.0.1:")
        assert message in error
    here.nodes["a"].pause()
    try:
        refused = here.run("drain", "b")
    finally:
        here.nodes["a"].process.send_signal(signal.SIGCONT)
    assert "does not answer" in refused.stderr
    assert here.document() == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["add", "x"], "unknown spare 'x'; there are no spares. To add a server"),
        (["add", "x y=h:1"], "a name must be text without spaces, not 'x y'"),
        (["add", "x=h:p"], "not HOST:PORT"),
        (["add", "a=h:1"], "a at 127.0.0.1:"),
        (["drain", "x"], "unknown node 'x'; known nodes: a, b"),
        (["remove", "a", "b"], "no node would be left"),
        (["drain", "a", "--rate", "x"], "--rate: must be a whole number, not 'x'"),
        (["drain", "a", "--rate", "-1"], "--rate: must be a whole number"),
    ],
)
def test_wrong_arguments(here: Cluster, command: list[str], message: str) -> None:
    add(here, "memlite", "ab")
    refused = here.run(*command)
    assert refused.returncode == 64
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1
