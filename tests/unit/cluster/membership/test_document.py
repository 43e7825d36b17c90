"""The cluster document: its contents, and changes of nodes while keys move."""

import json

import pytest

from memlite.cluster.membership.document import Document, Entry
from memlite.cluster.membership.encoding import DocumentError
from memlite.cluster.topology import Phase

NONCE = "00112233445566778899aabbccddeeff"
NOW = 1_800_000_000.0
OLD_FORMAT = (
    b'{"format": 1, "epoch": 7, "members": [{"name": "a", "address": "h:1", "incarnation": 3, '
    b'"joined": 4, "weight": 1}], "hash": "ketama", "hash_tag": ""}'
)


def entry(name: str, incarnation: int = 1, *, leased: bool = True) -> Entry:
    return Entry(name, f"{name}:11211", incarnation, leased=leased)


def names(entries: tuple[Entry, ...]) -> str:
    return "".join(one.name for one in entries)


def cluster(phase: Phase | None = None) -> Document:
    """Return a cluster of a, b and c with spares d and e; d is being added, and c is drained."""
    document = Document(
        members=tuple(map(entry, "abc")), spares=(entry("d"), entry("e", 0, leased=False))
    )
    if phase is not None:
        document = document.moving_to("abd", NONCE, NOW)
        before = () if phase is Phase.PREPARE else dict.fromkeys((Phase.MOVE, phase))
        for further in before:
            document = document.in_phase(further, NOW)
    return document


PHASES = [pytest.param(phase, id=phase.value) for phase in Phase]
LATE = [phase for phase in PHASES if phase.id != "prepare"]


def going_on() -> Document:
    """Return the cluster during a move that continues without b and d, which are gone."""
    document = Document(members=tuple(map(entry, "abc")), spares=(entry("d"), entry("e")))
    moving = document.moving_to("abde", NONCE, NOW).in_phase(Phase.MOVE, NOW)
    return moving.going_on_without(["b", "d"], NOW)


def test_a_move_goes_on_without_nodes_that_are_gone() -> None:
    document = going_on()
    assert Document.decode(document.encode()) == document
    topology = document.topology()
    assert topology is not None
    assert topology.move is not None
    assert [node.name for node in topology.move.nodes] == ["a", "e"]
    assert [node.name for node in topology.move.begun] == ["a", "b", "d", "e"]
    for name in "bd":
        assert document.with_node(entry(name, 2), NOW) is document, "it returns only after the move"
        assert document.without(name, 1, NOW) is document, "the move still needs its place"
    after = document.in_phase(Phase.SETTLE, NOW).moved(NOW)
    assert names(after.members) == "ae"
    assert names(after.spares) == "bcd"


@pytest.mark.parametrize("phase", [None, *Phase])
def test_a_written_document_is_read_back(phase: Phase | None) -> None:
    document = cluster(phase)
    assert Document.decode(document.encode()) == document


def test_empty_fields_unknown_to_older_versions_are_omitted() -> None:
    document = Document.decode(OLD_FORMAT)
    assert names(document.members) == "a"
    assert not document.spares
    assert document.move is None
    fields = json.loads(document.encode())
    assert fields.pop("format") == 1
    old = json.loads(OLD_FORMAT)
    del old["format"]
    assert fields == old


@pytest.mark.parametrize(
    "change",
    [
        {"move": {"phase": "x", "target": ["a"], "nonce": NONCE, "forgets": [], "epochs": {}}},
        {"move": {"phase": "move", "target": ["x"], "nonce": NONCE, "forgets": [], "epochs": {}}},
        {"move": {"phase": "move", "target": [], "nonce": NONCE, "forgets": [], "epochs": {}}},
        {"move": {"phase": "move", "target": ["a"], "nonce": "1", "forgets": [], "epochs": {}}},
        {"move": {"phase": "move"}},
        {"spares": [{"name": "a"}]},
        {"spares": 1},
    ],
    ids=str,
)
def test_invalid_documents_are_refused(change: dict[str, object]) -> None:
    data = json.dumps({**json.loads(OLD_FORMAT), **change}).encode()
    with pytest.raises(DocumentError, match="topology: not a valid cluster object"):
        Document.decode(data)


def test_the_topology_says_where_keys_move() -> None:
    assert cluster().topology().move is None  # type: ignore[union-attr]
    topology = cluster(Phase.MOVE).topology()
    assert topology is not None
    assert [node.name for node in topology.nodes] == ["a", "b", "c"]
    assert topology.move is not None
    assert topology.move.phase is Phase.MOVE
    assert [node.name for node in topology.move.nodes] == ["a", "b", "d"]


@pytest.mark.parametrize("phase", [None, *Phase])
def test_a_new_node_waits_while_keys_move_unless_it_is_a_spare(phase: Phase | None) -> None:
    before = cluster(phase)
    joined = before.with_node(entry("f"), NOW)
    assert names(joined.members) == ("abcf" if phase is None else "abc")
    assert (joined is before) == (phase is not None)
    spare = before.with_node(entry("f"), NOW, spare=True)
    assert names(spare.spares) == "def"
    assert spare.move == before.move
    assert spare.epoch > before.epoch


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        (name, phase)
        for name in "ad"
        for phase in (None, *Phase)
        if (name, phase) != ("d", Phase.BACK)
    ],
)
def test_a_node_that_comes_back_takes_its_place(name: str, phase: Phase | None) -> None:
    before = cluster(phase)
    for spare in (False, True):
        after = before.with_node(entry(name, 2), NOW, spare=spare)
        assert after.entry(name) == entry(name, 2)
        assert names(after.members) == names(before.members)
        assert names(after.target) == names(before.target)
        assert after.move == before.move
    assert before.with_node(entry(name, 0), NOW) is before, "a later incarnation is present"


def test_a_new_node_whose_keys_are_given_up_waits() -> None:
    before = cluster(Phase.BACK)
    assert before.with_node(entry("d", 2), NOW) is before
    assert before.with_node(entry("d", 2), NOW, spare=True) is before


def test_a_node_does_not_take_the_place_of_one_without_a_lease() -> None:
    assert cluster().with_node(entry("e", 5), NOW) == cluster()


@pytest.mark.parametrize("phase", PHASES)
def test_a_spare_that_takes_no_part_in_the_move_can_leave(phase: Phase) -> None:
    before = cluster(phase)
    after = before.without("e", 0, NOW)
    assert names(after.spares) == "d"
    assert after.move == before.move


@pytest.mark.parametrize("name", "abcd")
def test_a_node_that_leaves_before_keys_have_moved_ends_the_move(name: str) -> None:
    after = cluster(Phase.PREPARE).without(name, 1, NOW)
    assert after.move is None
    assert names(after.nodes) == "abcde".replace(name, "")
    assert names(after.members) == "abc".replace(name, "")


@pytest.mark.parametrize("phase", LATE)
@pytest.mark.parametrize("name", "abcd")
def test_a_node_that_leaves_while_keys_move_keeps_its_place(phase: Phase, name: str) -> None:
    before = cluster(phase)
    assert before.without(name, 1, NOW) is before


def test_after_a_move() -> None:
    after = cluster(Phase.SETTLE).moved(NOW)
    assert after.move is None
    assert names(after.members) == "abd"
    assert names(after.spares) == "ce"
    assert names(cluster(Phase.BACK).not_moved(NOW).members) == "abc"
    assert names(cluster(Phase.BACK).not_moved(NOW).spares) == "de"


def test_nodes_without_a_lease_can_be_forgotten() -> None:
    members = (entry("a"), entry("b", 0, leased=False), entry("c"))
    document = Document(members=members).moving_to("a", NONCE, NOW, forgets="bc")
    after = document.in_phase(Phase.MOVE, NOW).in_phase(Phase.SETTLE, NOW).moved(NOW)
    assert names(after.members) == "a"
    assert names(after.spares) == "c", "it would register itself again"


def replicated(phase: Phase | None = None) -> Document:
    """Return the cluster with two replicas."""
    document = Document(members=tuple(map(entry, "abc")), spares=(entry("d"),), replicas=2)
    if phase is not None:
        document = document.moving_to("abd", NONCE, NOW)
        for further in (Phase.PREPARE, Phase.MOVE, phase):
            document = document.in_phase(further, NOW)
    return document


def test_replicas_are_written_and_read() -> None:
    document = replicated()
    assert Document.decode(document.encode()) == document
    topology = document.topology()
    assert topology is not None
    assert topology.replicas == 2


def test_with_replicas_a_move_begins_and_ends_with_copies() -> None:
    document = replicated().moving_to("abd", NONCE, NOW)
    assert document.move is not None
    assert document.move.phase is Phase.GATHER
    moved = replicated(Phase.SETTLE).moved(NOW)
    assert moved.move is not None
    assert moved.move.phase is Phase.SPREAD
    assert names(moved.members) == "abd"
    assert moved.move.target == tuple("abd")
    assert moved.not_moved(NOW).move is None
    back = replicated(Phase.BACK).not_moved(NOW)
    assert back.move is not None
    assert back.move.phase is Phase.SPREAD
    assert names(back.members) == names(back.target) == "abc"


def test_raising_the_number_of_replicas_only_makes_copies() -> None:
    document = replicated().with_replicas(3, NONCE, NOW)
    assert document.move is not None
    assert document.move.phase is Phase.SPREAD
    assert document.move.target == tuple("abc")
    assert document.move.former == 2, "existing copies are not made again"
    assert Document.decode(document.encode()) == document
    empty = Document().with_replicas(2, NONCE, NOW)
    assert empty.move is None
    assert empty.replicas == 2


def test_with_replicas_a_node_that_joins_is_a_spare() -> None:
    document = replicated()
    assert names(document.with_node(entry("e"), NOW).spares) == "de"
    assert names(Document(replicas=2).with_node(entry("e"), NOW).members) == "e"
    back = document.with_node(entry("b", 2), NOW)
    assert (names(back.members), names(back.spares)) == ("ac", "bd")
    alone = Document(members=(entry("a"),), replicas=2).with_node(entry("a", 2), NOW)
    assert names(alone.members) == "a"


@pytest.mark.parametrize("phase", list(Phase))
def test_with_replicas_no_node_comes_back_and_none_leaves_while_keys_move(phase: Phase) -> None:
    document = replicated(phase)
    for name in "abcd":
        assert document.with_node(entry(name, 2), NOW) is document
        assert document.waits(name, spare=False)
        assert document.without(name, 1, NOW) is document
    assert not document.waits("e", spare=False)
    assert names(document.with_node(entry("e"), NOW).spares) == "de"
