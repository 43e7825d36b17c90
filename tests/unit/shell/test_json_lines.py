import json

import pytest

from memlite.client.replies import END, Item, Line, Shape
from memlite.shell.json_lines import JsonLines
from memlite.shell.typed import Request


def shown(shape, words, *parts, whole=True):
    """Return the objects that the display writes for a reply."""
    display = JsonLines()
    display.begin(Request(b"", shape, tuple(words.encode().split())))
    written = b"".join(one for part in parts for one in display.part(part))
    written += display.end(whole=whole)
    return [json.loads(line) for line in written.splitlines()]


def test_items():
    parts = Item(b"VALUE a 5 3 17", b"xyz"), Item(b"VALUE b 0 2 18", b"\xff\x00"), END
    assert shown(Shape.ITEMS, "gets a b c", *parts) == [
        {
            "items": [
                {"key": "a", "flags": 5, "cas": 17, "value": "xyz"},
                {"key": "b", "flags": 0, "cas": 18, "value_base64": "/wA="},
            ]
        }
    ]


def test_no_items():
    assert shown(Shape.ITEMS, "get a", END) == [{"items": []}]


def test_a_meta_item_and_its_flags():
    found = shown(Shape.META, "mg a v t", Item(b"VA 1 t-1", b"x"))
    assert found == [{"items": [{"key": "a", "meta": ["t-1"], "value": "x"}]}]
    assert shown(Shape.META, "mg a v", Line(b"EN")) == [{"reply": "EN"}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7), ("-7", -7), ("0", 0), ("007", "007"), ("1.50", 1.5), ("1.6.45", "1.6.45"),
        ("1e5", "1e5"), (str(2**53), 2**53), (str(2**53 + 1), str(2**53 + 1)), ("off", "off"),
        ("", ""), ("a b", "a b"),
    ],
)  # fmt: skip
def test_statistics(text, value):
    parts = Line(b"STAT name " + text.encode()), END
    assert shown(Shape.ROWS, "stats", *parts) == [{"stats": {"name": value}}]


def test_no_statistics():
    assert shown(Shape.ROWS, "stats items", END) == [{"stats": {}}]


@pytest.mark.parametrize("shape", [Shape.LINE, Shape.ITEMS, Shape.ROWS, Shape.META])
def test_errors_are_told_apart(shape):
    assert shown(shape, "x", Line(b"ERROR")) == [{"error": "ERROR"}]
    said = "SERVER_ERROR out of memory"
    assert shown(shape, "x", Line(said.encode())) == [{"error": said}]


def test_each_line_of_a_dump_is_an_object():
    parts = Line(b"key=a"), Line(b"key=b"), END
    assert shown(Shape.DUMP, "x", *parts) == [{"reply": "key=a"}, {"reply": "key=b"}]


def test_the_received_part_of_a_truncated_reply():
    assert shown(Shape.ITEMS, "get a b", whole=False) == []
    part = Item(b"VALUE a 0 1", b"x")
    assert shown(Shape.ITEMS, "get a b", part, whole=False) == [
        {"items": [{"key": "a", "flags": 0, "value": "x"}]}
    ]
