"""The list of hot keys, and the document that contains it."""

import json
from dataclasses import replace

import pytest

from memlite.cluster.hot_keys import HotKey, demote, promote, remove
from memlite.cluster.membership.document import Document, DocumentError, Entry
from memlite.cluster.show import as_json, as_text
from memlite.core.errors import ConfigError

MEMBERS = (Entry("one", "10.0.0.1:11211", 1),)


def test_hot_keys_are_promoted_and_demoted() -> None:
    one = promote((), [b"a", b"b", b"a"], 5)
    assert one == (HotKey(b"a", 5), HotKey(b"b", 5))
    assert promote(one, [b"a"], 6) == one
    two = demote(one, [b"a", b"c"], 7)
    assert two == (HotKey(b"a", 7, demoted=True), HotKey(b"b", 5))
    assert demote(two, [b"a"], 8) == two
    assert promote(two, [b"a"], 9) == (HotKey(b"b", 5), HotKey(b"a", 9))
    assert remove(two, [HotKey(b"a", 7, demoted=True)]) == (HotKey(b"b", 5),)
    assert remove(promote(two, [b"a"], 9), two[:1]) == (HotKey(b"b", 5), HotKey(b"a", 9))
    assert all(HotKey.decode(entry.encode()) == entry for entry in two)


def test_manual_promotions_are_not_automatic() -> None:
    automatic = promote((), [b"a"], 5, automatic=True)
    assert automatic == (HotKey(b"a", 5, automatic=True),)
    assert promote(automatic, [b"a"], 6, automatic=True) == automatic
    assert promote(automatic, [b"a"], 6) == (replace(automatic[0], automatic=False),)


def test_the_number_of_hot_keys_is_limited() -> None:
    listed = promote((), [b"%d" % number for number in range(64)], 1)
    with pytest.raises(ConfigError, match=r"65 hot keys, .* exceed the limit of 64"):
        promote(listed, [b"a"], 2)
    assert promote(listed, [b"1"], 2) == listed
    assert len(demote(listed, [b"1"], 2)) == 64


@pytest.mark.parametrize("key", [b"", b"x" * 251, b"a " + b"x" * 185])
def test_a_key_that_cannot_be_sent(key: bytes) -> None:
    with pytest.raises(ConfigError, match=r"a hot key .*must have 1 to"):
        promote((), [key], 1)


def test_the_document_contains_hot_keys() -> None:
    document = Document(7, MEMBERS)
    assert b"hot_keys" not in document.encode()
    changed = document.with_hot_keys(promote((), [b"a\xff"], 8), 0)
    assert changed.epoch == 8
    assert changed.with_hot_keys(changed.hot_keys, 0) is changed
    assert Document.decode(changed.encode()) == changed
    topology = changed.topology()
    assert topology is not None
    assert topology.hot_keys == changed.hot_keys
    assert document.with_hot_keys((), 0) is document


@pytest.mark.parametrize(
    "entry",
    [
        {"key": "YQ==", "epoch": 1, "demoted": False},
        {"key": "YQ==", "epoch": "1", "demoted": False, "automatic": False},
        {"key": "?", "epoch": 1, "demoted": False, "automatic": False},
        {"key": "", "epoch": 1, "demoted": False, "automatic": False},
        7,
    ],
)
def test_invalid_hot_keys(entry: object) -> None:
    fields = json.loads(Document(7, MEMBERS).encode())
    with pytest.raises(DocumentError):
        Document.decode(json.dumps({**fields, "hot_keys": [entry]}).encode())


def test_hot_keys_are_shown() -> None:
    listed = demote(promote(promote((), [b"a b"], 3), [b"c"], 4, automatic=True), [b"a b"], 5)
    document = Document(5, MEMBERS, hot_keys=listed)
    assert as_text(document).splitlines()[-2:] == [
        "hot key a%20b, demoted in epoch 5",
        "hot key c, promoted in epoch 4, automatically",
    ]
    assert json.loads(as_json(document))["hot_keys"] == [
        {"key": "a%20b", "state": "demoted", "epoch": 5},
        {"key": "c", "state": "promoted", "epoch": 4},
    ]
