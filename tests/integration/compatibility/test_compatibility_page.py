"""`docs/reference/compatibility.md` agrees with the command tables and with both servers."""

import re
import struct
from collections.abc import Iterator

import pytest

from memlite.config import Config
from memlite.protocol import binary_table, meta, text, text_table
from memlite.protocol.packets import Opcode
from memlite.server.admin import stats_commands
from memlite.server.admin.watchers import STREAMS
from memlite.server.server import Server
from tests.support.paths import DOCS
from tests.support.servers import RunningServer, memcached_version, running

PAGE = DOCS / "reference" / "compatibility.md"
PEER = memcached_version() >= (1, 6, 45)


# memcached commands that memlite does not implement. The page lists them too.
NOT_IN_MEMLITE = {"extstore"}


def rows(section: str) -> list[list[str]]:
    """Return the cells of a section's table, without its header."""
    text_ = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text_.splitlines() if line.startswith("|")]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in lines[2:]]  # fmt: skip


def code(cell: str) -> str:
    """Return the code at the beginning of a cell, without the backquotes."""
    found = re.match(r"`([^`]+)`", cell)
    assert found, cell
    return found[1]


def named(cell: str) -> str:
    """Return the first word of the code in a cell."""
    return code(cell).partition(" ")[0]


def admin_commands() -> set[str]:
    """Return the names of memlite's administrative commands."""
    return {name.decode() for name in Server(Config(debug_commands=True), []).admin.commands}


def test_commands_about_keys_have_the_syntax_of_the_command_table() -> None:
    """These include the meta commands and quit."""
    in_the_table = [command.syntax for command in text_table.COMMANDS]
    on_the_page = [code(row[0]) for row in rows("Text commands")]
    others = admin_commands() | NOT_IN_MEMLITE
    about_keys = [syntax for syntax in on_the_page if syntax.partition(" ")[0] not in others]
    assert sorted(about_keys) == sorted(in_the_table)


def test_the_parser_knows_the_commands_of_the_command_table() -> None:
    assert set(text._PARSED_BY) - {b"stats", b"version"} == set(text_table.BY_WORD)


def test_every_administrative_command_is_listed_once() -> None:
    about_keys = {word.decode() for word in text_table.BY_WORD}
    on_the_page = [named(row[0]) for row in rows("Text commands")]
    assert set(on_the_page) - about_keys == admin_commands() | NOT_IN_MEMLITE
    repeated = {name for name in on_the_page if on_the_page.count(name) > 1}
    assert repeated == {"lru_crawler"}


def test_every_meta_flag_is_listed() -> None:
    letters = [named(row[0]) for row in rows("Meta commands")]
    assert sorted(letters) == sorted(map(chr, meta._FLAGS))


def test_every_opcode_is_listed_by_number_and_name() -> None:
    opcodes = [int(row[0], 16) for row in rows("Binary commands")]
    assert opcodes == sorted(Opcode)
    for row in rows("Binary commands"):
        name = Opcode(int(row[0], 16)).name.replace("_", "").lower()
        assert re.sub("[ -]", "", row[1]).lower() == name


def test_binary_commands_are_those_of_the_command_table() -> None:
    """The SASL commands are missing from that table: they are answered without a command set."""
    in_the_table = [
        name for command in binary_table.COMMANDS for name in command.syntax.split(", ")
    ]
    on_the_page = [re.sub("[ -]", "", row[1]).upper() for row in rows("Binary commands")]
    assert sorted(name for name in on_the_page if "SASL" not in name) == sorted(in_the_table)


def test_every_group_of_statistics_is_listed() -> None:
    groups = {row[0].strip("`").partition(" ")[2].partition(" ")[0] for row in rows("Statistics")}
    ours = {name.decode() for name in stats_commands.GROUPS | stats_commands.SCANS}
    assert ours <= groups
    assert groups - ours == {
        "", "conns", "detail", "cachedump", "reset", "hotkeys", "slow", "extstore", "proxy"
    }  # fmt: skip


def test_every_stream_is_listed() -> None:
    assert {named(row[0]) for row in rows("Watchers")} == set(STREAMS)


@pytest.fixture(scope="module", params=["memlite", "memcached"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, RunningServer]]:
    if request.param == "memcached" and not PEER:
        pytest.skip("there is no memcached 1.6.45")
    options = ["--debug-commands", "--slow-log", "1s"] if request.param == "memlite" else []
    with running(request.param, "-A", *options) as server:
        yield request.param, server


REQUESTS = {
    "get": b"get a", "gets": b"gets a", "gat": b"gat 0 a", "gats": b"gats 0 a",
    "set": b"set a 0 0 1\r\nx", "add": b"add a 0 0 1\r\nx", "replace": b"replace a 0 0 1\r\nx",
    "append": b"append a 0 0 1\r\nx", "prepend": b"prepend a 0 0 1\r\nx",
    "cas": b"cas a 0 0 1 1\r\nx", "delete": b"delete a", "incr": b"incr a 1", "decr": b"decr a 1",
    "touch": b"touch a 0", "mg": b"mg a v", "ms": b"ms a 1\r\nx", "md": b"md a", "ma": b"ma n",
    "mn": b"mn", "me": b"me a", "flush_all": b"flush_all", "version": b"version",
    "verbosity": b"verbosity 0", "cache_memlimit": b"cache_memlimit 64", "stats": b"stats",
    "watch": b"watch fetchers", "refresh_certs": b"refresh_certs", "slabs": b"slabs automove 0",
    "lru": b"lru tune 10 25 0.1 2.0", "extstore": b"extstore", "shutdown": b"shutdown nonsense",
    "quit": b"quit", "debugtime": b"debugtime 0",
}  # fmt: skip


@pytest.mark.parametrize("row", rows("Text commands"), ids=lambda row: row[0])
def test_a_text_command_is_answered(row: list[str], server: tuple[str, RunningServer]) -> None:
    kind, running_server = server
    command = row[0].strip("`").split()
    request = REQUESTS.get(command[0])
    if command[0] == "lru_crawler":
        request = (
            b"lru_crawler " + {"metadump": b"metadump all", "tocrawl": b"tocrawl 5"}[command[1]]
        )
    assert request is not None
    says = row[2] if kind == "memlite" else row[1]
    with running_server.connect() as wire:
        wire.send(request + b"\r\n")
        known = request == b"quit" or wire.line() != b"ERROR\r\n"
    # memcached has extstore and debug commands only if it was built with them.
    if kind == "memlite" or (says != "debug builds" and command[0] != "extstore"):
        assert known == (says != "no")


@pytest.mark.parametrize("row", rows("Statistics"), ids=lambda row: row[0])
def test_a_group_of_statistics_is_answered(
    row: list[str], server: tuple[str, RunningServer]
) -> None:
    kind, running_server = server
    says = row[2] if kind == "memlite" else row[1]
    with running_server.connect() as wire:
        wire.send(row[0].strip("`").encode() + b"\r\n")
        known = wire.line() != b"ERROR\r\n"
    if kind == "memlite" or not row[0].startswith(("`stats extstore", "`stats proxy")):
        assert known == (says != "no")


@pytest.mark.parametrize("row", rows("Watchers"), ids=lambda row: row[0])
def test_a_stream_is_accepted(row: list[str], server: tuple[str, RunningServer]) -> None:
    kind, running_server = server
    if kind == "memcached" and row[0].startswith("`proxy"):
        pytest.skip("only a memcached built with the proxy has these")
    with running_server.connect() as wire:
        wire.send(b"watch " + named(row[0]).encode() + b"\r\n")
        known = wire.line() == b"OK\r\n"
    assert known == (row[2 if kind == "memlite" else 1] != "no")


@pytest.mark.parametrize("row", rows("Binary commands"), ids=lambda row: row[1])
def test_an_opcode_is_answered(row: list[str], server: tuple[str, RunningServer]) -> None:
    """A packet with only a header: a known opcode is carried out or malformed, never unknown."""
    kind, running_server = server
    says = row[3] if kind == "memlite" else row[2]
    # The servers check that a SASL packet has a mechanism and a message before they check for -S.
    key, body = (b"PLAIN", b"PLAIN\0a\0b") if row[1] in ("SASL auth", "SASL step") else (b"", b"")
    head = struct.pack(">BBHBBHIIQ", 0x80, int(row[0], 16), len(key), 0, 0, 0, len(body), 0, 0)
    reply = running_server.ask(head + body)
    unknown = len(reply) >= 8 and reply[1] == int(row[0], 16) and reply[6:8] == b"\0\x81"
    assert unknown == (says == "no" or "with `-S`" in says)
