"""A server inside another program: ``memlite.serve``."""

import asyncio
import gc
import logging
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

import memlite
from memlite.config.options import Config
from memlite.core.clock import Clock
from memlite.core.errors import ConfigError, StartError
from memlite.core.version import SERVER_VERSION
from tests.support.certificates import Authority

Run = Callable[[Awaitable[None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(work: Awaitable[None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(debug=True, loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(work, 60))

    return run


async def ask(server, request: bytes, **options: object) -> bytes:
    if isinstance(server.address, str):
        reader, writer = await asyncio.open_unix_connection(server.address)
    else:
        reader, writer = await asyncio.open_connection(*server.address, **options)
    writer.write(request)
    reply = await reader.readline()
    writer.close()
    return reply


def test_it_serves_until_the_context_ends(run: Run) -> None:
    async def test() -> None:
        async with memlite.serve(memory_limit=128) as server:
            assert server.host == "127.0.0.1"
            assert server.port > 0
            assert (server.path, server.udp_port) == ("", 0)
            assert server.config.memory_limit == 128
            assert await ask(server, b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
        with pytest.raises(ConnectionRefusedError):
            await ask(server, b"get a\r\n")

    run(test())


def test_two_servers_share_only_the_loop(run: Run) -> None:
    async def test() -> None:
        async with memlite.serve() as one, memlite.serve() as two:
            assert await ask(one, b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
            assert await ask(two, b"get a\r\n") == b"END\r\n"
            await one.stop()
            assert await ask(two, b"version\r\n") == b"VERSION %b\r\n" % SERVER_VERSION.encode()

    run(test())


def as_frozen(before: int) -> bool:
    """Return whether no objects were frozen or released since; a few may have been freed."""
    return 0.9 * before <= gc.get_freeze_count() <= before


def test_the_programs_global_state_is_unchanged(run: Run) -> None:
    def handler(loop: asyncio.AbstractEventLoop, context: object) -> None:
        pass

    def state() -> list[object]:
        loop = asyncio.get_running_loop()
        names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
        logger = logging.getLogger("memlite")
        return [
            loop.get_exception_handler(), gc.get_threshold(),
            logging.root.handlers[:], logging.root.level, logger.handlers[:], logger.level,
            *(signal.getsignal(getattr(signal, name)) for name in names),
            signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        ]  # fmt: skip

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(handler)
        before, frozen = state(), gc.get_freeze_count()
        async with memlite.serve(verbose=2) as server:
            assert state() == before
            assert as_frozen(frozen)
            await ask(server, b"stats\r\n")
        assert state() == before
        assert as_frozen(frozen)

    run(test())


def test_a_port_in_use(run: Run) -> None:
    async def test() -> None:
        async with memlite.serve() as first:
            with pytest.raises(StartError, match=f"TCP port {first.port}.*in use"):
                async with memlite.serve(port=first.port):
                    pass
            assert (await ask(first, b"version\r\n")).startswith(b"VERSION")
        async with memlite.serve(port=first.port) as second:  # free again
            assert second.port == first.port

    run(test())


def test_a_port_in_use_for_udp_only(run: Run) -> None:
    async def test() -> None:
        async with memlite.serve() as server:  # a port that is free for TCP
            port = server.port
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", port))
            with pytest.raises(StartError, match=f"UDP port {port}"):
                async with memlite.serve(port=port, udp_port=port):
                    pass
            async with memlite.serve(port=port):
                pass

    run(test())


def test_on_a_unix_socket(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "socket"

    async def test() -> None:
        async with memlite.serve(unix_socket=path) as server:
            assert server.address == server.path == str(path)
            assert (server.host, server.port) == ("", 0)
            assert (await ask(server, b"version\r\n")).startswith(b"VERSION")
        assert not path.exists()

    run(test())


def test_a_file_backend_keeps_items_across_restarts(run: Run, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/cache.json"

    async def test() -> None:
        async with memlite.serve(backend=url) as server:
            await ask(server, b"set a 0 0 1\r\n1\r\n")
            with pytest.raises(StartError, match="another"):
                async with memlite.serve(backend=url):
                    pass
        async with memlite.serve(backend=url) as server:
            assert await ask(server, b"get a\r\n") == b"VALUE a 0 1\r\n"

    run(test())


def test_settings_can_be_given_as_a_config(run: Run) -> None:
    async def test() -> None:
        config = Config(port=0, memory_limit=32, disable_flush_all=True)
        async with memlite.serve(config, host="::1", memory_limit=16) as server:
            assert (server.host, server.config.memory_limit) == ("::1", 16)
            assert (await ask(server, b"flush_all\r\n")).startswith(b"CLIENT_ERROR")

    run(test())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_limt": 1}, "unknown setting"),
        ({"memory_limit": 0}, "at least 1"),
        ({"daemon": True}, "daemon"),
        ({"loop": "uvloop"}, "loop"),
        ({"enable_ssl": True}, "certificate"),
    ],
)
def test_invalid_settings(settings: dict[str, object], message: str) -> None:
    async def test() -> None:
        with pytest.raises(ConfigError, match=message):
            async with memlite.serve(**settings):
                pass

    asyncio.run(test())


def test_with_tls(run: Run, tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("server")
    files = {"ssl_chain_cert": issued.cert, "ssl_key": issued.key}
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")

    async def test() -> None:
        async with memlite.serve(enable_ssl=True, extended=files) as server:
            assert (await ask(server, b"version\r\n", ssl=context)).startswith(b"VERSION")

    run(test())


def test_with_a_clock_controlled_by_the_test() -> None:
    async def test() -> None:
        clock = Clock()
        async with memlite.serve(clock=clock, debug_commands=True) as server:
            await ask(server, b"set a 0 50 1\r\n1\r\n")
            clock.advance(60)
            assert await ask(server, b"get a\r\n") == b"END\r\n"

    asyncio.run(test())


def test_connections_finish_commands_that_have_begun(run: Run) -> None:
    async def test() -> None:
        async with memlite.serve() as server:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(b"set a 0 0 5\r\n12")
            await asyncio.sleep(0.05)
            stopping = asyncio.ensure_future(server.stop())
            await asyncio.sleep(0.05)
            writer.write(b"345\r\n")
            assert await reader.read() == b"STORED\r\n"
            await stopping
            await server.stop()  # stopping twice is allowed
            writer.close()

    run(test())


def test_a_client_can_shut_it_down(run: Run) -> None:
    async def test() -> None:
        async with memlite.serve(enable_shutdown=True) as server:
            await ask(server, b"shutdown\r\n")
            await server.wait_closed()

    run(test())


def test_cancelling_the_program_closes_everything(run: Run) -> None:
    async def test() -> None:
        started: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()

        async def program() -> None:
            async with memlite.serve() as server:
                started.set_result((server.host, server.port))
                await asyncio.sleep(60)

        task = asyncio.ensure_future(program())
        host, port = await started
        _, writer = await asyncio.open_connection(host, port)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, port)
        writer.close()

    run(test())


def test_cancelling_the_servers_task_leaves_the_loop_clean(run: Run) -> None:
    async def test() -> None:
        async with memlite.serve() as server:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(b"version\r\n")
            await reader.readline()
            (task,) = (task for task in asyncio.all_tasks() if "Lifecycle.run" in repr(task))
            task.cancel()
            await server.wait_closed()
            assert await reader.read() == b""
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*server.address)
            writer.close()
            async with memlite.serve(port=server.port):
                pass

    run(test())


def test_importing_the_package_does_not_import_the_server() -> None:
    code = "import sys, memlite; print(*(name for name in sys.modules if 'memlite' in name))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert sorted(shown.split()) == ["memlite", "memlite.core", "memlite.core.version"]
    with pytest.raises(AttributeError, match="no attribute 'server_of_another_name'"):
        _ = memlite.server_of_another_name
