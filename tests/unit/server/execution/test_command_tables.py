"""The command tables: every row has a method, and describes its arguments correctly."""

import inspect

import pytest

from memlite.core.build import running_build
from memlite.protocol import Handler, binary_table, text_table
from memlite.protocol.commands import QUIT, Access, no_keys
from memlite.protocol.meta import MetaRequest
from memlite.protocol.packets import BinaryRequest, Opcode
from memlite.server.execution.binary_commands import BinaryCommands
from memlite.server.execution.lite_commands import LiteCommands
from memlite.server.execution.pipelined import StoreExecutor
from memlite.server.execution.text_commands import TextCommands
from memlite.telemetry.counters import COMMAND_CLASSES

TEXT = (
    *text_table.COMMANDS,
    text_table.ADMIN,
    text_table.SET_FRAMED,
    text_table.TOO_LARGE,
    text_table.REJECT,
)
BINARY = (*binary_table.COMMANDS, binary_table.TOO_LARGE, binary_table.REJECT, QUIT)
ROWS = [
    *((row, commands) for row in TEXT for commands in (TextCommands, LiteCommands)),
    *((row, BinaryCommands) for row in BINARY),
]
EXAMPLES = {"key": b"k", "keys": [b"k", b"l"], "noreply": True, "words": [b"stats"]}


def parameters(row, commands):
    return list(inspect.signature(getattr(commands, row.name)).parameters)[1:]


def arguments_of(row, commands):
    """Arguments with the keys k, or k and l, that request no reply."""

    def example(name):
        if name == "request":
            binary = commands is BinaryCommands
            return BinaryRequest(Opcode.GET, b"k", 0, 0) if binary else MetaRequest(b"k", [])
        return EXAMPLES.get(name, b"x")

    return tuple(map(example, parameters(row, commands)))


@pytest.mark.parametrize(("row", "commands"), ROWS)
def test_every_row_has_a_method_and_a_latency_class(row, commands):
    assert callable(getattr(commands, row.name))
    assert row.latency in COMMAND_CLASSES


@pytest.mark.parametrize(("row", "commands"), ROWS)
def test_rows_name_the_keys_among_the_arguments(row, commands):
    names = parameters(row, commands)
    keys = list(row.keys(arguments_of(row, commands)))
    if row.keys is no_keys:
        assert not {"key", "keys"} & set(names)
        assert keys == []
    else:
        assert keys == ([b"k", b"l"] if "keys" in names else [b"k"])


@pytest.mark.parametrize(("row", "commands"), ROWS)
def test_rows_know_whether_the_last_argument_suppresses_the_reply(row, commands):
    names = parameters(row, commands)
    assert row.noreply == (names[-1:] == ["noreply"])
    assert row.quiet(arguments_of(row, commands)) == row.noreply


@pytest.mark.parametrize("commands", [TextCommands, LiteCommands, StoreExecutor])
@pytest.mark.parametrize("name", ["try_get", "set", "set_framed", "execute", "reject", "quit"])
def test_executors_are_handlers(commands, name):
    promised = inspect.signature(getattr(Handler, name))
    given = inspect.signature(getattr(commands, name))
    if running_build() == "compiled":  # which keeps no annotations
        assert list(given.parameters) == list(promised.parameters)
    else:
        assert given == promised


def meta(**fields):
    request = MetaRequest(b"k", [])
    for name, value in fields.items():
        setattr(request, name, value)
    return (request,)


@pytest.mark.parametrize(
    ("word", "fields", "access"),
    [
        (b"mg", {}, Access.CACHED_OR_CHANGE),
        (b"mg", {"unique_asked": True}, Access.CURRENT_OR_CHANGE),
        (b"mg", {"touch": 1}, Access.CHANGE),
        (b"ms", {}, Access.BLIND),
        (b"ms", {"mode": ord("S")}, Access.BLIND),
        (b"ms", {"mode": ord("E")}, Access.CHANGE),
        (b"ms", {"compare": 5}, Access.CHANGE),
        (b"ms", {"unique_asked": True}, Access.CHANGE),
        (b"md", {}, Access.CHANGE),
        (b"ma", {}, Access.CHANGE),
        (b"me", {}, Access.CURRENT),
    ],
)
def test_access_of_meta_commands(word, fields, access):
    assert text_table.BY_WORD[word].access(meta(**fields)) is access


@pytest.mark.parametrize(
    ("opcode", "cas", "access"),
    [
        (Opcode.SET, 0, Access.BLIND),
        (Opcode.SETQ, 0, Access.BLIND),
        (Opcode.SET, 7, Access.CHANGE),
        (Opcode.ADD, 0, Access.CHANGE),
        (Opcode.APPENDQ, 0, Access.CHANGE),
    ],
)
def test_access_of_binary_stores(opcode, cas, access):
    assert binary_table.STORE.access((BinaryRequest(opcode, b"k", 0, cas),)) is access


@pytest.mark.parametrize(
    ("opcode", "alone"), [(Opcode.NOOP, False), (Opcode.STAT, True), (Opcode.FLUSH, True)]
)
def test_binary_commands_that_change_nothing_need_not_run_alone(opcode, alone):
    access = binary_table.ADMIN.access((BinaryRequest(opcode, b"", 0, 0),))
    assert (access is Access.ALONE) is alone
