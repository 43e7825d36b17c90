"""A memory server imports only what it needs, and imports nothing while it serves."""

import os
import re
from collections.abc import Callable

import pytest

from memlite.core.build import running_build
from tests.support.servers import RunningServer

Start = Callable[..., RunningServer]

# Modules of the standard library that are slow to import and not needed to serve from memory. (ssl,
# subprocess and inspect are not needed either, but asyncio imports them.)
SLOW = {
    "argparse", "email", "importlib.metadata", "importlib.resources", "json", "pathlib",
    "tomllib", "urllib.parse", "zipfile",
}  # fmt: skip
# Modules of memlite that only other settings or special requests need.
OF_OTHERS = {
    "memlite.backends.jsonfile", "memlite.backends.memory", "memlite.backends.nearcache",
    "memlite.backends.registry", "memlite.backends.writeback", "memlite.cli.help",
    "memlite.client", "memlite.config.keywords", "memlite.server.embedding",
    "memlite.engine.store", "memlite.loadtest", "memlite.protocol.binary",
    "memlite.protocol.frames", "memlite.protocol.lite",
    "memlite.protocol.login", "memlite.protocol.packets", "memlite.protocol.sasl",
    "memlite.server.admin", "memlite.server.auth.auth", "memlite.server.auth.throttle",
    "memlite.server.auth.users", "memlite.server.connections.tls",
    "memlite.server.connections.tls_transport", "memlite.server.connections.udp",
    "memlite.server.execution.binary_commands", "memlite.server.execution.pipelined",
    "memlite.server.execution.lite_commands", "memlite.server.on_demand", "memlite.shell",
    "memlite.telemetry.line", "memlite.telemetry.memcached_stats", "memlite.telemetry.snapshot",
    "memlite.testing",
}  # fmt: skip


def imported(server: RunningServer) -> list[str]:
    """Return the modules that a server has imported so far; it must log its imports."""
    return re.findall(r"^import time: .*\| +(\S+)$", server.log.read_text(), re.MULTILINE)


@pytest.fixture
def server(start: Start) -> RunningServer:
    """A server that has accepted a connection and logs its imports."""
    return start(environment={"PYTHONPROFILEIMPORTTIME": "1"})


def test_a_memory_server_imports_only_what_it_needs(server: RunningServer) -> None:
    modules = set(imported(server))
    # Compiled modules that other compiled modules import are not logged.
    assert {"memlite.server.server", "memlite.server.connections.connection", "asyncio"} <= modules
    assert modules & (SLOW | OF_OTHERS) == set()


def test_gets_and_sets_import_nothing(server: RunningServer) -> None:
    with server.connect() as wire:
        assert wire.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
        before = imported(server)
        for _ in range(300):  # some of which are sampled
            assert wire.ask(b"set a 0 100 1\r\n1\r\n") == b"STORED\r\n"
            wire.send(b"get a\r\nget a b\r\nget b\r\n")
            assert wire.exactly(47) == b"VALUE a 0 1\r\n1\r\nEND\r\n" * 2 + b"END\r\n"
    assert imported(server) == before


@pytest.mark.parametrize(
    ("request_", "module"),
    [
        (b"stats\r\n", "memlite.server.admin.admin"),
        (b"watch\r\n", "memlite.server.admin.watchers"),
        pytest.param(
            b"\x80\x0a" + bytes(22),
            "memlite.protocol.packets",
            marks=pytest.mark.skipif(
                running_build() == "compiled", reason="imports of compiled modules are not logged"
            ),
        ),
    ],
)
def test_other_modules_are_imported_on_first_use(
    server: RunningServer, request_: bytes, module: str
) -> None:
    with server.connect() as wire:
        wire.send(request_)
        assert wire.sock.recv(100)
    assert module in imported(server)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can use -u")
@pytest.mark.parametrize("kind", ["memlite", "memlite-near"])
def test_a_server_that_gives_up_root_imports_everything_before(start: Start, kind: str) -> None:
    """The new user may not be allowed to read Python's files."""
    log = {"PYTHONPROFILEIMPORTTIME": "1"}
    server = start("-u", "nobody", "--debug-commands", kind=kind, environment=log)
    before = imported(server)
    for request, end in (
        # All requests are for one key, which therefore has all samples.
        (b"set a 0 0 1\r\n1\r\nget a\r\nmg a v\r\ndelete a\r\n", b"DELETED\r\n"),
        # So many requests certainly contain a sampled one: one read in 511 is sampled, and a read
        # has 20 commands.
        (b"get a\r\n" * 10_300 + b"stats hotkeys\r\n", b"share 100.00\r\nEND\r\n"),
        (b"set a 0 0 1\r\n1\r\n", b"STORED\r\n"),
        *((b"stats %b\r\n" % group, b"END\r\n") for group in (b"", b"settings", b"conns")),
        (b"lru_crawler metadump all\r\n", b"END\r\n"),
        (b"watch\r\n", b"OK\r\n"),
        (b"\x80\x0a" + bytes(22), bytes(16)),
    ):
        with server.connect() as wire:
            wire.send(request)
            assert wire.until(end)
    assert imported(server) == before
