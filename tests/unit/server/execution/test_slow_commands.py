"""The slow log's entries for commands, in memory and on a slow backend."""

import asyncio
import time

import pytest

from memlite.config import Config
from memlite.protocol import binary_table, text_table
from memlite.protocol.packets import BinaryRequest
from memlite.server.execution.slow_commands import SlowCommands, name_of
from memlite.server.server import Server
from memlite.telemetry.slow import SlowLog
from tests.unit.backends.slow_backend import SlowBackend
from tests.unit.server.execution.test_pipelined import serving

BY_NAME = {command.name: command for command in text_table.COMMANDS}


@pytest.mark.parametrize(
    ("command", "arguments", "name"),
    [
        (text_table.GET, ([b"a", b"b"],), "get"),
        (BY_NAME["gat"], (0, [b"a"]), "gat"),
        (text_table.SET_FRAMED, (b"k", 0, b"VALUE k 0 1\r\nv\r\nEND\r\n", False), "set"),
        (BY_NAME["meta_get"], (None,), "mg"),
        (BY_NAME["incr"], (b"k", 1, False), "incr"),
        (text_table.ADMIN, ([b"stats", b"items"], False), "stats"),
        (text_table.ADMIN, ([b"flush_all"], False), "flush_all"),
        (text_table.ADMIN, ([b"\x1b[2Jx"], False), "unknown"),
        (text_table.ADMIN, ([b"x" * 300], False), "x" * 32),
        (text_table.TOO_LARGE, (b"set", b"k", False), "set"),
        (text_table.BAD_CHUNK, (b"k", False), "bad_chunk"),
        (text_table.REJECT, (b"ERROR\r\n", False), "reject"),
        (binary_table.GET, (BinaryRequest(0x0D, b"k", 0, 0),), "getkq"),
        (binary_table.STORE, (BinaryRequest(0x11, b"k", 0, 0),), "setq"),
        (binary_table.ADMIN, (BinaryRequest(0xF7, b"", 0, 0),), "unknown"),
    ],
)
def test_commands_are_named_as_clients_write_them(command, arguments, name):
    assert name_of(command, arguments) == name


def test_only_commands_that_reach_the_threshold_are_logged():
    log = SlowLog(1000, Server(Config(), []).clock)
    commands = SlowCommands(log, "client")
    for nanoseconds in (999, 1000, 1001):
        commands.record(text_table.GET, ([b"a", b"b"],), nanoseconds)
    assert [(one.nanoseconds, one.keys, one.key) for one in log.stats().commands] == [
        (1001, 2, b"a"),
        (1000, 2, b"a"),
    ]


def address_of(one):
    address, port = one.writer.get_extra_info("sockname")
    return f"tcp:{address}:{port}"


def slow(one):
    """Return the names and first keys of the slow commands, the oldest first."""
    return [(found.command, found.key) for found in reversed(one.server.slow.stats().commands)]


async def test_commands_on_a_backend_are_timed_until_the_reply_is_ready():
    async with serving(slow_log="20ms") as one:
        one.backend.gate.clear()
        one.send(b"get a\r\n")
        await one.under_way(1)
        began = time.perf_counter()
        await one.until(lambda: time.perf_counter() - began > 0.03)
        one.backend.gate.set()
        await one.expect(b"END\r\n")
        (found,) = (c for c in one.server.slow.stats().commands if c.command == "get")
        assert found.nanoseconds >= 30_000_000
        assert found.client == address_of(one)


async def test_the_entry_names_a_client_that_has_disconnected():
    async with serving(slow_log="1us") as one:
        address = address_of(one)
        one.backend.gate.clear()
        one.send(b"add a 0 0 1\r\nx\r\n")
        await one.under_way(1)
        one.vanish()
        await one.until(lambda: not one.server.register.connections)
        one.backend.gate.set()
        await one.until(lambda: one.server.slow.count)
        assert slow(one) == [("add", b"a")]
        assert one.server.slow.stats().commands[0].client == address


class WithoutPeeking(SlowBackend):
    """A backend that must be queried for every read, like a bucket."""

    peeks = False


@pytest.mark.parametrize(
    ("make", "options"),
    [(WithoutPeeking, {}), (SlowBackend, {}), (SlowBackend, {"near_cache": 2**20})],
    ids=["asked", "plain", "near"],
)
async def test_every_path_to_a_backend_is_timed(make, options):
    async with serving(make, slow_log="1us", **options) as one:
        await one.ask(b"set a 0 0 1\r\n1\r\n", b"STORED\r\n")
        await one.ask(b"get a\r\n", b"VALUE a 0 1\r\n1\r\nEND\r\n")
        await one.ask(b"get a\r\n", b"VALUE a 0 1\r\n1\r\nEND\r\n")
        await one.ask(b"get a b\r\n", b"VALUE a 0 1\r\n1\r\nEND\r\n")
        await one.ask(b"mg b\r\n", b"EN\r\n")
        await one.ask(b"delete a\r\nversion\r\n", b"DELETED\r\nVERSION ")
        found = slow(one)
        gets = found.count(("get", b"a"))
        # Reads that the near cache answers without the parser are timed only if they are sampled.
        assert gets in ((1, 2, 3) if options else (3,))
        assert found == [
            ("set", b"a"),
            *[("get", b"a")] * gets,
            ("mg", b"b"),
            ("delete", b"a"),
            ("version", None),
        ]


async def test_without_a_slow_log_reads_keep_their_fast_path():
    async with serving() as one:
        await one.ask(b"get a\r\n", b"END\r\n")
        assert one.connection._immediate_limit > 0
        assert one.server.slow is None
        await one.ask(
            b"stats slow\r\n",
            b"CLIENT_ERROR slow commands are not logged; start the server with --slow-log\r\n",
        )


async def test_watchers_are_notified_of_slow_commands():
    async with serving(slow_log="1us") as one:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.server.listeners[0].port)
        writer.write(b"watch slow\r\n")
        assert await reader.readline() == b"OK\r\n"
        assert not one.server.engine.observed
        await one.ask(b"set a%20b 0 0 1\r\nx\r\n", b"STORED\r\n")
        async with asyncio.timeout(60):
            while b"cmd=set" not in (line := await reader.readline()):
                assert b"cmd=watch" in line
        assert b" type=slow elapsed=" in line
        assert b" keys=1 key=a%2520b client=tcp:127.0.0.1:" in line
        writer.close()
        await one.until(lambda: not len(one.server.administration.watchers))
        assert one.server.slow.watcher is None
