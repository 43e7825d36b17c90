"""What a server in memory imports: nothing that it does not need, and nothing while it serves."""

import re
from collections.abc import Callable

import pytest

from tests.integration.servers import RunningServer

Start = Callable[..., RunningServer]

# Of the standard library, what is slow to import and has no part in serving from memory. (ssl,
# subprocess and inspect have none either, but asyncio imports them.)
SLOW = {
    "argparse", "email", "importlib.metadata", "importlib.resources", "json", "pathlib",
    "tomllib", "urllib.parse", "zipfile",
}  # fmt: skip
# Of memlite, what only other settings need, or what somebody has to ask for first.
OF_OTHERS = {
    "memlite.backends.jsonfile", "memlite.backends.memory", "memlite.backends.nearcache",
    "memlite.backends.registry", "memlite.backends.writeback", "memlite.engine.store",
    "memlite.loadtest", "memlite.protocol.binary", "memlite.protocol.client",
    "memlite.protocol.frames", "memlite.protocol.lite", "memlite.protocol.login",
    "memlite.protocol.packets", "memlite.protocol.sasl", "memlite.server.admin",
    "memlite.server.auth", "memlite.server.binary", "memlite.server.deferred",
    "memlite.server.dumps", "memlite.server.encrypted", "memlite.server.lite",
    "memlite.server.statistics", "memlite.server.throttle", "memlite.server.tls",
    "memlite.server.udp", "memlite.server.users", "memlite.server.watchers", "memlite.shell",
    "memlite.testing", "memlite.texts",
}  # fmt: skip


def imported(server: RunningServer) -> list[str]:
    """Return the modules a server has imported by now; it was started to log them."""
    return re.findall(r"^import time: .*\| +(\S+)$", server.log.read_text(), re.MULTILINE)


@pytest.fixture
def server(start: Start) -> RunningServer:
    """A server that has accepted a connection, and says what it imports."""
    return start(environment={"PYTHONPROFILEIMPORTTIME": "1"})


def test_a_server_in_memory_imports_nothing_it_does_not_need(server: RunningServer) -> None:
    modules = set(imported(server))
    assert {"memlite.server.connection", "memlite.protocol.text", "asyncio"} <= modules
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
        (b"stats\r\n", "memlite.server.admin"),
        (b"watch\r\n", "memlite.server.watchers"),
        (b"\x80\x0a" + bytes(22), "memlite.protocol.packets"),
    ],
)
def test_what_somebody_asks_for_is_imported_then(
    server: RunningServer, request_: bytes, module: str
) -> None:
    with server.connect() as wire:
        wire.send(request_)
        assert wire.sock.recv(100)
    assert module in imported(server)
