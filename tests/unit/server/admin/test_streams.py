"""Watchers and dumps on a slow backend, which the tests can pause and break."""

import asyncio
import re

import pytest

from memlite.backends import Record
from memlite.config import Config, ExtendedOptions
from memlite.core.errors import StorageError
from memlite.server.admin import dumps
from memlite.server.server import Server
from tests.unit.server.execution.test_pipelined import serving


@pytest.fixture
async def one():
    async with serving() as one:
        yield one


async def connect(one):
    return await asyncio.open_connection("127.0.0.1", one.server.listeners[0].port)


async def watch(one, kinds):
    reader, writer = await connect(one)
    writer.write(b"watch %b\r\n" % kinds)
    assert await reader.readline() == b"OK\r\n"
    return reader, writer


async def events(reader, count):
    """Return lines without their time."""
    async with asyncio.timeout(60):
        lines = [await reader.readline() for _ in range(count)]
    return [re.sub(rb"^ts=\S+ gid=\d+ |\n$", b"", line).decode() for line in lines]


def number(one, writer):
    """Return the server's file descriptor of a connection."""
    port = writer.get_extra_info("sockname")[1]
    (found,) = (c.number for c in one.server.register.connections if c.peer.endswith(f":{port}"))
    return found


async def test_lines_name_the_connection_whatever_order_commands_end_in(one):
    reader, watcher = await watch(one, b"fetchers mutations deletions")
    _, other = await connect(one)
    await one.backend.store(b"a", b"1")
    one.backend.gate.clear()
    one.send(b"get a\r\n")
    other.write(b"delete a\r\n")
    await one.under_way(2)
    one.backend.gate.set()
    lines = sorted(await events(reader, 3))
    mine, others = number(one, one.writer), number(one, other)
    assert lines == sorted(
        [
            f"type=item_get key=a status=found clsid=1 cfd={mine} size=1",
            f"type=item_get key=a status=found clsid=1 cfd={others} size=1",
            "type=deleted key=a cmd=delete clsid=1 size=1",
        ]
    )
    for writer in (watcher, other):
        writer.close()


async def test_set_logs_no_lookup(one):
    reader, watcher = await watch(one, b"fetchers mutations")
    await one.ask(b"set a 0 0 1\r\nx\r\nadd a 0 0 1\r\ny\r\n", b"STORED\r\nNOT_STORED\r\n")
    cfd = number(one, one.writer)
    assert await events(reader, 3) == [
        f"type=item_store key=a status=stored cmd=set ttl=0 clsid=1 cfd={cfd} size=1",
        f"type=item_get key=a status=found clsid=1 cfd={cfd} size=1",
        f"type=item_store key=a status=not_stored cmd=add ttl=0 clsid=1 cfd={cfd} size=1",
    ]
    watcher.close()


async def test_commands_of_a_lost_connection_have_no_file_descriptor(one):
    reader, watcher = await watch(one, b"mutations")
    one.backend.gate.clear()
    one.send(b"add a 0 0 1\r\nx\r\n")
    await one.under_way(1)
    one.vanish()
    await one.until(lambda: len(one.server.register.connections) == 1)
    one.backend.gate.set()
    assert await events(reader, 1) == [
        "type=item_store key=a status=stored cmd=add ttl=0 clsid=1 cfd=-1 size=1"
    ]
    watcher.close()


@pytest.mark.parametrize("command", [b"watch", b"lru_crawler metadump all"])
async def test_watch_and_dumps_may_not_follow_a_command_that_waits(one, command):
    one.backend.gate.clear()
    one.send(b"get a\r\n%b\r\nget b\r\n" % command)
    await one.under_way(1)
    one.backend.gate.set()
    error = b"ERROR cannot pipeline other commands before %b\r\n"
    await one.expect(b"END\r\n" + error % command.removesuffix(b" all").split()[-1] + b"END\r\n")
    # On its own it is accepted.
    one.send(command + b"\r\n")
    await one.expect(b"OK\r\n")


async def test_commands_after_a_dump_wait_for_its_end(one):
    for key in (b"a", b"b"):
        await one.backend.store(key, b"1")
    one.backend.gate.clear()
    one.send(b"lru_crawler mgdump all\r\nget a\r\nset c 0 0 1\r\n")
    await one.under_way(0)
    one.send(b"x\r\n")
    one.backend.gate.set()
    await one.expect(b"OK\r\nmg a\r\nmg b\r\nEN\r\nVALUE a 0 1\r\n1\r\nEND\r\nSTORED\r\n")


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (StorageError, b"SERVER_ERROR down\r\n"),
        (RuntimeError, b"SERVER_ERROR internal error\r\n"),
    ],
)
async def test_a_scan_that_fails_ends_the_dump(one, monkeypatch, error, reply):
    async def scan():
        yield Record(b"a", b"1")
        raise error("down")

    monkeypatch.setattr(one.backend, "scan", scan)
    await one.ask(b"lru_crawler mgdump all\r\n", b"OK\r\nmg a\r\n" + reply)
    await one.ask(b"get a\r\n", b"END\r\n")
    assert not one.server.administration.dumps.running


async def test_a_peer_that_stops_reading_is_disconnected(one, monkeypatch):
    monkeypatch.setattr(dumps, "_PATIENCE", 0.1)

    async def scan():
        while True:
            for _ in range(100):
                yield Record(b"k" * 250, b"1")
            await asyncio.sleep(0)

    monkeypatch.setattr(one.backend, "scan", scan)
    one.writer.transport.pause_reading()
    one.send(b"lru_crawler mgdump all\r\n")
    await one.until(lambda: not one.server.register.connections)
    await one.until(lambda: not one.server.administration.dumps.running)


async def test_keys_that_text_cannot_contain_are_dumped_in_base64(one):
    for key in (b"a b", b"c\r", b"d\xff", b"\x00", b"plain"):
        await one.backend.store(key, b"1")
    await one.ask(
        b"lru_crawler mgdump all\r\n",
        b"OK\r\nmg YSBi b\r\nmg Yw0= b\r\nmg d\xff\r\nmg AA== b\r\nmg plain\r\nEN\r\n",
    )
    one.send(b"lru_crawler metadump all\r\n")
    text = await one.reader.readuntil(b"END\r\n")
    assert re.findall(rb"key=(\S+)", text) == [b"a%20b", b"c%0D", b"d%FF", b"%00", b"plain"]


async def test_a_watcher_that_half_closes_is_disconnected(one):
    reader, writer = await watch(one, b"fetchers")
    writer.write_eof()
    assert await reader.read() == b""
    await one.until(lambda: not len(one.server.administration.watchers))
    assert not one.server.engine.observed
    writer.close()


async def test_commands_are_not_observed_when_only_evictions_or_connections_are_watched(one):
    _, watcher = await watch(one, b"evictions connevents sysevents")
    assert one.server.engine.observer is not None
    assert not one.server.engine.observed
    assert not one.server.instrumentation.active
    watcher.close()
    await one.until(lambda: one.server.engine.observer is None)


@pytest.mark.parametrize(
    ("given", "enabled"),
    [
        ("", True),
        ("no_lru_crawler", False),
        ("no_modern", False),
        ("no_modern,lru_crawler", True),
        ("lru_crawler,no_lru_crawler", False),
    ],
)
def test_the_crawler_is_on_unless_the_last_option_disables_it(given, enabled):
    assert ExtendedOptions.parse(given).lru_crawler is enabled


def test_a_connection_made_before_watching_began_leaves_the_fast_path():
    server = Server(Config(protocol="ascii"), [])
    connection = server.connect()
    assert connection._fast_limit > 0
    # As if a watcher had started before connection_made.
    server.instrumentation.watch_commands(True)
    assert server.register.admit(connection)
    assert connection._fast_limit < 0
