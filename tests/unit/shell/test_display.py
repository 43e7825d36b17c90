"""The displays: formatted values, tables, and no unsafe characters."""

import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlite.client.replies import Item, Line, ReplyReader, Shape
from memlite.core.errors import ProtocolViolation
from memlite.shell.commands import COMMANDS
from memlite.shell.display import Style
from memlite.shell.flags import META_FLAGS, describe_reply_flag
from memlite.shell.help import overview, topic
from memlite.shell.pretty import Pretty
from memlite.shell.raw import Raw
from memlite.shell.text import HEX, JSON, TEXT, clean, hex_dump, indent_json, value_format
from memlite.shell.typed import read_line

PIPE = Style()
TERMINAL = Style(terminal=True, colour=True, width=80)
PLAIN_TERMINAL = Style(terminal=True, width=80)


def written(display, parts):
    return b"".join(data for part in parts for data in display.part(part))


def shown(style, line, *parts):
    display = Pretty(style)
    display.begin(read_line(line))
    return (written(display, parts) + display.end()).decode()


# Values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"hello", TEXT),
        ("grüße 👩‍👩‍👧".encode(), TEXT),
        (b"a line\r\nanother\r\n", TEXT),
        (b"a text with one \x1b[31m in it, which is long", TEXT),
        (b"\x1b\x1b\x1b[0m", HEX),
        (b"\0", HEX),
        (b"\xff\xfe", HEX),
        (b'{"a": 1}', JSON),
        (b"[1, 2]", JSON),
        (b"{not json}", TEXT),
        (b"[" * 100_000, TEXT),
        (b"[" + b"9" * 5000 + b"]", TEXT),
        (b"12", TEXT),
    ],
)
def test_the_format_of_a_value(value, expected):
    assert value_format(value) == expected


def test_indenting_json_preserves_numbers():
    text = '{"a":[1.50,1e400,{}],"b":"x\\n: {","c":[],"a":null}'
    assert indent_json(text.encode()) == (
        '{\n  "a": [\n    1.50,\n    1e400,\n    {}\n  ],\n  "b": "x\\n: {",\n  "c": [],\n'
        '  "a": null\n}'
    )


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner:
       st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)))  # fmt: skip
def test_indenting_json_preserves_its_value(value):
    again = json.loads(indent_json(json.dumps(value).encode()))
    assert again == value


def test_the_indentation_of_deep_json_is_bounded():
    value = b"[" * 500 + b",".join([b"1"] * 10_000) + b"]" * 500
    assert len(indent_json(value)) < 60 * 11_000


def test_hex_dumps():
    assert list(hex_dump(b"\x89PNG\r\n\x1a\n\xff" + b"a" * 8)) == [
        "00000000  89 50 4e 47 0d 0a 1a 0a  ff 61 61 61 61 61 61 61  |.PNG.....aaaaaaa|",
        "00000010  61                                                |a|",
    ]


@pytest.mark.parametrize("character", ["\x1b", "\x9b", "\r", "\x07", "\x7f", "\u202e", "\u2028"])
@pytest.mark.parametrize("style", [PIPE, PLAIN_TERMINAL])
def test_unsafe_characters_are_never_shown(style, character):
    raw = character.encode()
    parts = [
        Item(b"VALUE k%b 0 1" % raw, b"some text, long enough" + raw),
        Item(b"VALUE k 0 1", b'{"a": "%b"}' % raw),
        Item(b"VALUE k 0 1", raw),
        Line(b"STAT a%b b%b" % (raw, raw)),
        Line(b"ERROR " + raw),
        Line(b"STORED" + raw),
        Line(b"END"),
    ]
    for request in (b"get k", b"stats", b"mg k v", b"watch", b"lru_crawler metadump all"):
        text = shown(style, request, *parts)
        assert character not in text
    display = Raw(terminal=True)
    display.begin(read_line(b"get k"))
    assert raw not in written(display, parts)


@given(st.binary(max_size=100))
@example(b"\xc2\xa0")  # the no-break space, which Python does not consider printable
def test_cleaned_text_is_printable(data):
    assert all(character.isprintable() or character in "\n\xa0" for character in
               clean(data, lines=True).replace("\t", "")
               if ord(character) < 0x100)  # fmt: skip
    assert "\n" not in clean(data)


# Replies


def test_items_have_a_header():
    assert shown(PIPE, b"gets k nope", Item(b"VALUE k 3 5 12", b"hello"), Line(b"END")) == (
        "k: 5 bytes, flags 3, cas 12\nhello\n(1 of 2 found)\n"
    )
    assert shown(TERMINAL, b"get k", Item(b"VALUE k 0 1", b"x"), Line(b"END")) == (
        "\x1b[2mk: 1 byte, flags 0\x1b[0m\nx\n"
    )
    assert shown(PIPE, b"get k", Item(b"VALUE k 0 0", b""), Line(b"END")) == (
        "k: 0 bytes, flags 0\n(empty)\n"
    )
    assert shown(PIPE, b"gat 60 k", Line(b"END")) == "(not found)\n"


def test_meta_replies_are_explained():
    assert shown(PIPE, b"mg k v t f W", Item(b"VA 2 t-1 f0 c7 h1 l5 s2 W", b"hi")) == (
        "k: 2 bytes, no TTL, flags 0, cas 7, hit before, last access 5 s ago, size 2, "
        "won: recache it\nhi\n"
    )
    assert shown(PIPE, b"mg aw== b k v", Item(b"VA 2 kaw== b", b"hi")).startswith("aw==: 2 bytes")
    assert shown(PIPE, b"mg k", Line(b"EN")) == "EN  (not found)\n"
    assert shown(PIPE, b'ms k "x" c', Line(b"HD c7")) == "HD c7  (done, cas 7)\n"
    assert shown(PIPE, b"md k q") == "(no reply)\n"


def test_every_reply_flag_has_a_description():
    returned = {flag[0] for flags in META_FLAGS.values() for flag, meaning in flags.items()
                if meaning.startswith(("return", "opaque"))} - {"v"}  # fmt: skip
    for letter in returned | {"W", "X", "Z", "b"}:
        assert describe_reply_flag(f"{letter}1") != f"{letter}1", letter
    assert describe_reply_flag("?1") == "?1"


def test_statistics_are_a_table():
    rows = [Line(b"STAT pid 12345"), Line(b"STAT curr_items 1234567"), Line(b"STAT version 1.6.45"),
            Line(b"STAT rusage_user 0.012345"), Line(b"END")]  # fmt: skip
    assert shown(PLAIN_TERMINAL, b"stats", *rows) == (
        "pid              12345\n"
        "curr_items   1,234,567\n"
        "version      1.6.45\n"
        "rusage_user   0.012345\n"
    )
    assert "curr_items    1234567\n" in shown(PIPE, b"stats", *rows)
    assert shown(PIPE, b"stats conns", Line(b"END")) == "(nothing)\n"
    assert shown(PIPE, b"stats reset", Line(b"RESET")) == "RESET\n"


def test_tables_fit_the_terminal_and_are_flushed_regularly():
    long = Line(b"STAT %b %b" % (b"n" * 200, b"v" * 200))
    for line in shown(PLAIN_TERMINAL, b"stats", long, Line(b"END")).splitlines():
        assert len(line) <= 80
    assert "v" * 200 in shown(PIPE, b"stats", long, Line(b"END"))
    display = Pretty(PIPE)
    display.begin(read_line(b"stats"))
    pieces = [written(display, [Line(b"STAT a 1")]) for _ in range(2500)]
    assert [index for index, data in enumerate(pieces) if data] == [999, 1999]


def test_dumps_are_shown_line_by_line():
    assert shown(PIPE, b"lru_crawler metadump all", Line(b"OK"), Line(b"key=a exp=-1"), Line(b"END")
                 ) == "key=a exp=-1\n"  # fmt: skip
    assert shown(PIPE, b"lru_crawler mgdump all", Line(b"OK"), Line(b"EN")) == "(nothing)\n"


@pytest.mark.parametrize("text", [b"ERROR", b"CLIENT_ERROR x", b"SERVER_ERROR x"])
def test_errors_are_red(text):
    assert shown(TERMINAL, b"incr n 1", Line(text)) == f"\x1b[31m{text.decode()}\x1b[0m\n"
    assert shown(PIPE, b"incr n 1", Line(text)) == f"{text.decode()}\n"


def test_long_values_are_truncated_only_on_a_terminal():
    text = "é" * 50_000
    item = Item(b"VALUE k 0 100000", text.encode())
    assert "é" * 16_384 + "\n(the first 16,384 characters of 100,000 bytes" in shown(
        PLAIN_TERMINAL, b"get k", item
    )
    assert text in shown(PIPE, b"get k", item)
    widest = Item(b"VALUE k 0 80000", "👩".encode() * 20_000)
    assert "(the first 16,384 characters of 80,000 bytes" in shown(PLAIN_TERMINAL, b"get k", widest)
    item = Item(b"VALUE k 0 1024", bytes(1024))
    assert len(shown(PLAIN_TERMINAL, b"get k", item).splitlines()) == 18
    assert len(shown(PIPE, b"get k", item).splitlines()) == 65


def test_truncation_does_not_split_a_character():
    item = Item(b"VALUE k 0 100000", b"a" + "€".encode() * 30_000)
    assert "\\x" not in shown(PLAIN_TERMINAL, b"get k", item)


def raw(line, *parts, terminal=False):
    display = Raw(terminal=terminal)
    display.begin(read_line(line))
    return written(display, parts) + display.end()


def test_the_raw_display_adds_nothing_to_a_value():
    value = b"\x89PNG\r\n\x1b"
    assert raw(b"get k", Item(b"VALUE k 0 7", value), Line(b"END")) == value
    two = [Item(b"VALUE a 0 1", b"x"), Item(b"VALUE b 0 1", b"y"), Line(b"END")]
    assert raw(b"get a b", *two) == b"x\ny"
    assert raw(b"get a b", *two, terminal=True) == b"x\ny\n"
    assert raw(b"get k", Line(b"END")) == b""
    assert raw(b"stats", Line(b"STAT a 1000"), Line(b"END")) == b"STAT a 1000\n"
    assert raw(b"lru_crawler mgdump all", Line(b"OK"), Line(b"mg a"), Line(b"EN")) == b"mg a\n"


@given(
    st.sampled_from(["get k", "mg k v", "stats", "lru_crawler metadump all", "foo", "watch", "mn"]),
    st.lists(st.binary(max_size=20) | st.sampled_from([b"VA 2 {x} ", b"VALUE   2", b"HD {} k"])),
)
def test_any_reply_can_be_displayed(line, heads):
    request = read_line(line.encode())
    for display in (Pretty(TERMINAL), Pretty(PIPE), Raw(terminal=True), Raw(terminal=False)):
        reader = ReplyReader(value_length=100)
        reader.expect(request.shape)
        display.begin(request)
        with contextlib.suppress(ProtocolViolation):
            for head in heads:
                for reply in reader.feed(head + b"\r\nhi\r\n"):
                    written(display, reply.parts)
                written(display, reader.take_parts())
        display.end()


# Help


def test_help_lists_every_command_in_80_columns():
    text = overview(PLAIN_TERMINAL)
    for name, command in COMMANDS.items():
        assert f"  {command.usage}" in text
        assert command.summary in text
        text_of_one = topic(name, PLAIN_TERMINAL)
        assert text_of_one.startswith(command.usage)
        assert max(map(len, text_of_one.splitlines())) <= 80, name
        assert command.example.startswith(name)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", [name for name in COMMANDS if COMMANDS[name].group != "shell"])
def test_examples_are_valid(name):
    typed = read_line(COMMANDS[name].example.encode())
    assert typed.words[0] == name.encode()
    assert (typed.shape is Shape.FENCED) == ('"' in COMMANDS[name].example)


def test_help_on_meta_flags_and_unknown_commands():
    for name, flags in META_FLAGS.items():
        text = topic(name, PIPE)
        for flag in flags:
            assert f"    {flag} " in text
    assert topic("nonsense", PIPE) == "no such command; 'help' lists them\n"
