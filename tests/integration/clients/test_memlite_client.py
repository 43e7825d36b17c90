"""The connection of `memlite.client`, to real servers and to deliberately faulty ones."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from memlite.client import (
    FENCE,
    Address,
    Connection,
    ConnectionLostError,
    Fault,
    Item,
    Line,
    Login,
    LoginRefusedError,
    OutcomeUnknownError,
    ReplyError,
    SaslPlainLogin,
    Shape,
    TextLogin,
    TlsSettings,
    connect,
)
from tests.support.certificates import Authority
from tests.support.patience import patiently
from tests.support.servers import RunningServer, needs_memcached, running
from tests.support.waiting import eventually

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(
    scope="module", params=["memlite", pytest.param("memcached", marks=needs_memcached)]
)
def real(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running(request.param) as server:
        yield server


def at(server: RunningServer) -> Address:
    return Address("", 0, server.path) if server.path else Address("127.0.0.1", server.port)


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Address]:
    """Call `serve` with each connection, and close it afterwards."""

    running = []

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.append((asyncio.current_task(), writer))
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task, writer in running:
            writer.transport.abort()
            assert task is not None
            await asyncio.wait([task], timeout=60)
        await asyncio.sleep(0)


# Real servers


async def test_requests(real: RunningServer) -> None:
    async with await connect(at(real)) as connection:
        assert (await connection.request(b"set a 7 0 5\r\nEND\r\n\r\n")).line == b"STORED"
        reply = await connection.request(b"gets a nope\r\n", Shape.ITEMS)
        (item,) = reply.items
        assert (item.key, item.flags, item.value) == (b"a", 7, b"END\r\n")
        assert item.unique
        assert (await connection.request(b"mg a v f c k t\r\n", Shape.META)).parts == (
            Item(b"VA 5 f7 c%d ka t-1" % item.unique, b"END\r\n"),
        )
        assert (await connection.request(b"mg nope v\r\n", Shape.META)).line == b"EN"
        stats = await connection.request(b"stats\r\n", Shape.ROWS)
        assert stats.line == b"END"
        assert stats.parts[0] == Line(b"STAT pid %d" % real.process.pid)
        assert (await connection.request(b"nonsense\r\n")).error == b"ERROR"
        silent = b"set b 0 0 1 noreply\r\nx\r\n" + FENCE
        assert (await connection.request(silent, Shape.FENCED)).parts == ()
        assert (await connection.request(b"get b\r\n", Shape.ITEMS)).items[0].value == b"x"
        assert connection.outstanding == 0
        assert connection.sent
        assert connection.received


async def test_pipelining(real: RunningServer) -> None:
    async with await connect(at(real)) as connection:

        async def set_and_get(number: int) -> None:
            key, value = b"key-%d" % number, b"%d" % number * (number % 7)
            stored = connection.request(b"set %b 0 0 %d\r\n%b\r\n" % (key, len(value), value))
            got = connection.request(b"get %b\r\n" % key, Shape.ITEMS)
            first, second = await asyncio.gather(stored, got)
            assert first.line == b"STORED"
            assert second.items == [Item(b"VALUE %b 0 %d" % (key, len(value)), value)]

        await asyncio.gather(*map(set_and_get, range(1000)))


async def test_large_values_and_backpressure(real: RunningServer) -> None:
    value = bytes(range(256)) * 3900
    async with await connect(at(real)) as connection:
        request = b"set large-%%d 0 0 %d\r\n%b\r\n" % (len(value), value)
        stored = await asyncio.gather(
            *(connection.request(request.replace(b"%d", b"%d" % n, 1)) for n in range(20))
        )
        assert {reply.line for reply in stored} == {b"STORED"}
        found = await asyncio.gather(
            *(connection.request(b"get large-%d\r\n" % n, Shape.ITEMS) for n in range(20))
        )
        assert {reply.items[0].value for reply in found} == {value}


async def test_a_reply_read_in_parts(real: RunningServer) -> None:
    async with await connect(at(real)) as connection:
        parts = [
            part async for some in connection.stream(b"stats\r\n", Shape.ROWS) for part in some
        ]
        assert parts[-1] == Line(b"END")
        assert len(parts) > 20
        assert (await connection.request(FENCE)).line.startswith(b"VERSION ")


async def test_a_cancelled_request_does_not_affect_the_next(real: RunningServer) -> None:
    async with await connect(at(real)) as connection:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await connection.request(b"set c 0 0 1\r\nx\r\n")
        assert (await connection.request(b"get nope\r\n", Shape.ITEMS)).line == b"END"


async def test_a_unix_socket(start: Callable[..., RunningServer]) -> None:
    async with await connect(at(start(unix=True))) as connection:
        assert (await connection.request(FENCE)).line.startswith(b"VERSION ")


async def test_a_host_name_with_several_addresses(start: Callable[..., RunningServer]) -> None:
    server = start()
    async with await connect(Address("localhost", server.port)) as connection:
        assert (await connection.request(FENCE)).line.startswith(b"VERSION ")
    server.stop()
    with pytest.raises(ConnectionRefusedError, match="Connection refused"):
        await connect(Address("localhost", server.port))
    with pytest.raises(FileNotFoundError, match="No such file"):
        await connect(Address("", 0, "/no/such/socket"))
    with pytest.raises(OSError, match=r"Name or service|name resolution|known"):
        await connect(Address("no-such-host.invalid", 1))


async def test_a_server_that_is_killed(start: Callable[..., RunningServer]) -> None:
    server = start()
    connection = await connect(at(server))
    assert (await connection.request(FENCE)).line.startswith(b"VERSION ")
    server.process.kill()
    server.process.wait(60)
    with pytest.raises(ConnectionLostError):
        await connection.request(b"get a\r\n", Shape.ITEMS)
    await connection.close()


# Login and TLS


@pytest.fixture
def users(tmp_path: Path) -> str:
    path = tmp_path / "users"
    path.touch(0o600)
    path.write_bytes(b"ada:se-cret\n")
    return str(path)


@pytest.mark.parametrize(("login", "flags"), [(TextLogin, []), (SaslPlainLogin, ["-S"])])
async def test_login(
    start: Callable[..., RunningServer],
    users: str,
    login: Callable[[bytes, bytes], Login],
    flags: list[str],
) -> None:
    server = start(*flags, "-Y", users)
    with pytest.raises(LoginRefusedError, match=r"(?i)authentication as ada: .*fail") as caught:
        await connect(at(server), login=login(b"ada", b"wrong"))
    assert caught.value.user == b"ada"
    assert "wrong" not in repr(login(b"ada", b"wrong"))
    connection = await connect(at(server), login=login(b"ada", b"se-cret"))
    if login is TextLogin:
        assert (await connection.request(FENCE)).line.startswith(b"VERSION ")
    await connection.close()


@pytest.mark.parametrize("login", [TextLogin, SaslPlainLogin])
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"", "connection closed"),
        (b"ERROR Too many open connections\r\n", "ERROR Too many open connections"),
        (b"x" * 10_000, "xxx"),
    ],
)
async def test_a_login_with_an_invalid_reply(
    login: Callable[[bytes, bytes], Login], reply: bytes, said: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(reply)

    async with serving(serve) as address:
        with pytest.raises(LoginRefusedError) as caught:
            await connect(address, login=login(b"ada", b"x"))
    assert said[:20] in str(caught.value)
    assert len(str(caught.value)) < 1100


@pytest.mark.parametrize("login", [TextLogin, SaslPlainLogin])
async def test_a_login_without_a_reply(login: Callable[[bytes, bytes], Login]) -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            pass
        ended.set()

    async with serving(serve) as address:
        with pytest.raises(TimeoutError):
            await connect(address, login=login(b"ada", b"x"), timeout=0.5)
        await asyncio.wait_for(ended.wait(), 60)


async def test_tls(start: Callable[..., RunningServer], tmp_path: Path, users: str) -> None:
    pytest.importorskip("cryptography")
    authority = Authority(tmp_path)
    issued = authority.issue("server")
    server = start(*issued.flags, "-Y", users, tls=ssl.create_default_context(cafile=issued.ca))
    context = TlsSettings(str(issued.ca)).context()
    login = TextLogin(b"ada", b"se-cret")
    value = b"x" * 500_000
    for name in ("127.0.0.1", "localhost"):
        where = Address(name, server.port)
        async with await connect(where, tls=context, login=login) as connection:
            request = b"set k 0 0 %d\r\n%b\r\n" % (len(value), value)
            assert (await connection.request(request)).line == b"STORED"
            assert (await connection.request(b"get k\r\n", Shape.ITEMS)).items[0].value == value
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(at(server), tls=TlsSettings().context())
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(at(server), tls=context, server_name="cache.test")
    anyone = TlsSettings(verify=False).context()
    async with await connect(at(server), tls=anyone, login=login) as connection:
        server.process.kill()
        with pytest.raises(ConnectionLostError):
            while True:
                await connection.request(FENCE)


async def test_tls_to_a_server_without_tls(real: RunningServer) -> None:
    with pytest.raises(OSError, match=r"."):
        await connect(at(real), tls=TlsSettings(verify=False).context())


# Faulty servers


async def answer(address: Address, *requests: bytes, **options: float) -> list[object]:
    """Send requests together; return the line of each reply, or the error."""
    connection = await connect(address, **options)  # type: ignore[arg-type]
    sent = [connection.send(request) for request in requests]
    found = await asyncio.gather(*sent, return_exceptions=True)
    assert connection.lost is not None or all(not isinstance(one, Exception) for one in found)
    await connection.close()
    return [one if isinstance(one, BaseException) else one.line for one in found]


async def settled(value: Callable[[], int]) -> int:
    """Wait until a number has been stable for a while, and return it."""
    while True:
        before = value()
        await asyncio.sleep(0.3)
        if value() == before:
            return before


def replying(reply: bytes, *, reset: bool = False, stay: bool = False) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(reply)
        await writer.drain()
        if reset:
            await asyncio.sleep(0.05)
            writer.transport.abort()
        while stay and await reader.read(100):
            pass

    return serve


@pytest.mark.parametrize("reset", [False, True])
async def test_outcomes_are_unknown_when_the_connection_is_lost(reset: bool) -> None:
    async with serving(replying(b"STORED\r\nNOT_ST", reset=reset)) as address:
        first, *others = await answer(address, b"set a 0 0 1\r\n1\r\n", b"incr n 1\r\n", b"x\r\n")
    assert first == b"STORED"
    assert [type(one) for one in others] == [OutcomeUnknownError] * 2
    assert isinstance(others[0], OutcomeUnknownError)
    assert others[0].request == b"incr n 1\r\n"
    assert str(others[0]).endswith("the outcome of 'incr n 1' is unknown")
    assert isinstance(others[0], OSError)


async def test_requests_that_were_not_sent_are_reported_as_such() -> None:
    async with serving(replying(b"", stay=True)) as address:
        connection = await connect(address)
        sent = connection.send(b"get a\r\n")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        queued = connection.send(b"get b\r\n")
        connection.abort()
        for future, kind in ((sent, OutcomeUnknownError), (queued, ConnectionLostError)):
            with pytest.raises(ConnectionLostError) as caught:
                await future
            assert type(caught.value) is kind
        with pytest.raises(ConnectionLostError) as caught:
            connection.send(b"get c\r\n")
        assert type(caught.value) is ConnectionLostError
        await connection.close()


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (b"STORED\r\nHTTP/1.1 400 Bad Request\r\n", Fault.HTTP),
        (b"STORED\r\nwhat?\r\n", Fault.FOREIGN),
        (b"STORED\r\nERROR\r\nERROR\r\n", Fault.EXCESS),
    ],
)
async def test_an_invalid_reply_closes_the_connection_after_earlier_replies(
    reply: bytes, fault: Fault
) -> None:
    async with serving(replying(reply, stay=True)) as address:
        connection = await connect(address)
        first, second = connection.send(b"a\r\n"), connection.send(b"b\r\n")
        assert (await first).line == b"STORED"
        with contextlib.suppress(OutcomeUnknownError):
            await second
        assert connection.lost is not None
        assert isinstance(connection.lost.cause, ReplyError)
        assert connection.lost.cause.fault is fault
        await connection.close()


async def test_a_value_that_is_too_long() -> None:
    async with serving(replying(b"VALUE k 0 101\r\n", stay=True)) as address:
        connection = await connect(address, value_length=100)
        with pytest.raises(OutcomeUnknownError, match="101 bytes exceeds the limit of 100"):
            await connection.request(b"get k\r\n", Shape.ITEMS)
        await connection.close()


async def test_timeouts() -> None:
    async with serving(replying(b"STORED\r\n", stay=True)) as address:
        first, second = await answer(address, b"set a 0 0 1\r\n1\r\n", b"get a\r\n", timeout=1)
    assert first == b"STORED"
    assert isinstance(second, OutcomeUnknownError)
    assert isinstance(second.cause, TimeoutError)


@patiently
async def test_no_timeout_while_a_value_arrives_or_no_request_is_pending() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(b"VALUE k 0 8\r\n")
            for byte in b"12345678":
                await asyncio.sleep(0.1)
                writer.write(bytes([byte]))
            writer.write(b"\r\nEND\r\n")

    async with serving(serve) as address, await connect(address, timeout=0.5) as connection:
        for _ in range(2):
            reply = await connection.request(b"get k\r\n", Shape.ITEMS)
            assert reply.items == [Item(b"VALUE k 0 8", b"12345678")]
            await asyncio.sleep(0.7)


async def test_no_timeout_while_a_request_is_sent(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = size
        while left > 0:
            left -= len(await reader.read(1_000_000))
            await asyncio.sleep(0.02)
        writer.write(b"STORED\r\n")
        writer.close()

    size, path = 10_000_000, str(tmp_path / "socket")
    # A UNIX socket has small kernel buffers, so that sending continues until the end of the test.
    server = await asyncio.start_unix_server(serve, path)
    async with await connect(Address("", 0, path), timeout=1) as connection:
        assert (await connection.request(b"x" * size)).line == b"STORED"
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("close", [False, True])
async def test_data_sent_before_the_first_request_answers_it(close: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"ERROR Too many open connections\r\n")
        if not close:
            await reader.read()

    async with serving(serve) as address:
        connection = await connect(address)
        await asyncio.sleep(0.1)
        assert (await connection.request(b"get a\r\n", Shape.ITEMS)).error == (
            b"ERROR Too many open connections"
        )
        await connection.close()


async def test_endless_data_before_the_first_request_is_not_read() -> None:
    poured = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal poured
        while True:
            writer.write(b"STAT a 1\r\n" * 1000)
            await writer.drain()
            poured += 10_000

    async with serving(serve) as address, await connect(address) as connection:
        stopped = await settled(lambda: poured)
        stream = connection.stream(b"stats\r\n", Shape.ROWS)
        left = stopped / 10 + 10_000
        while left > 0:
            left -= len(await anext(stream))


async def test_the_last_reply_may_be_the_end_of_the_connection() -> None:
    for reply, line in (
        (b"", b""),
        (b"ERROR: shutdown not enabled\r\n", b"ERROR: shutdown not enabled"),
    ):
        async with serving(replying(reply)) as address:
            connection = await connect(address)
            assert (await connection.request(b"shutdown\r\n", Shape.LAST)).line == line
            await connection.close()


async def test_a_stream_waits_for_its_reader_and_can_be_abandoned() -> None:
    poured = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal poured
        await reader.readline()
        while True:
            writer.write(b"STAT a 1\r\n" * 1000)
            await writer.drain()
            poured += 10_000

    async with serving(serve) as address:
        connection = await connect(address, timeout=1)
        stream = connection.stream(b"stats\r\n", Shape.ROWS)
        assert set(await anext(stream)) == {Line(b"STAT a 1")}
        await asyncio.sleep(1.5)  # longer than the timeout
        await settled(lambda: poured)
        assert connection.lost is None
        left = poured / 10 + 10_000
        while left > 0:
            left -= len(await anext(stream))
        stream.close()
        assert connection.lost is not None
        with pytest.raises(ConnectionLostError):
            while True:
                await anext(stream)
        await connection.close()


async def test_an_interrupted_stream_yields_what_has_arrived() -> None:
    async with serving(replying(b"STAT a 1\r\nSTAT b")) as address:
        connection = await connect(address)
        seen = []
        with pytest.raises(OutcomeUnknownError):
            async for parts in connection.stream(b"stats\r\n", Shape.ROWS):
                seen += parts
        assert seen == [Line(b"STAT a 1")]
        await connection.close()


async def test_waiting_writers_are_woken_when_the_connection_is_lost() -> None:
    waiting = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await waiting.wait()
        writer.transport.abort()

    async with serving(serve) as address:
        connection = await connect(address, timeout=None)
        tasks = [asyncio.ensure_future(connection.request(b"x" * 1_000_000)) for _ in range(50)]
        assert await eventually(lambda: connection.outstanding > 0)
        assert connection.outstanding < 50
        waiting.set()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = {type(error) for error in errors}
        assert kinds == {OutcomeUnknownError, ConnectionLostError}
        await connection.close()


async def test_requests_in_one_iteration_of_the_loop_are_one_write() -> None:
    written = []

    class Transport(asyncio.Transport):
        def write(self, data: bytes) -> None:  # type: ignore[override]
            written.append(data)

        def is_closing(self) -> bool:
            return False

        def abort(self) -> None:
            pass

        def get_write_buffer_size(self) -> int:
            return 0

    connection = Connection(name="x", timeout=None)
    connection.connection_made(Transport())
    futures = [connection.send(b"get %d\r\n" % number, Shape.ITEMS) for number in range(3)]
    assert written == []
    await asyncio.sleep(0)
    assert written == [b"get 0\r\nget 1\r\nget 2\r\n"]
    connection.data_received(b"END\r\n" * 3)
    assert [(await future).line for future in futures] == [b"END"] * 3
    connection.abort()
