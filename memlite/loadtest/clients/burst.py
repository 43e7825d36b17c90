"""New clients, all at once: each connects, sets a key of its own, gets it and leaves."""

import asyncio
import ssl
from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

from memlite.errors import ProtocolViolation
from memlite.loadtest.login import Login, LoginRefusedError
from memlite.loadtest.recorder import Recorder
from memlite.protocol.client import ReplyReader

if TYPE_CHECKING:
    from memlite.loadtest.operations import Operation

__all__ = ["burst"]

_READ_BYTES = 256 * 1024


async def burst(
    address: tuple[str, int] | str,
    requests: "Sequence[tuple[Operation, Operation]]",
    *,
    patience: float,
    recorder: Recorder,
    login: Login | None = None,
    tls: ssl.SSLContext | None = None,
    lite: bool = False,
) -> None:
    """Run so many clients at once, and return when all have left.

    Args:
        address: host and port, or the path of a UNIX socket.
        requests: each client's set and get.
        patience: seconds after which a client gives up.
        recorder: what is written into: ``connect``, ``set`` and ``get``.
        login: who clients say they are, as a part of ``connect``; None for nobody.
        tls: what they connect with; None for no TLS.
        lite: whether they speak the lite dialect.
    """

    async def one(store: "Operation", read: "Operation") -> None:
        client = _Client(recorder, lite)
        try:
            async with asyncio.timeout(patience):
                await client.run(address, tls, login, store.request, read.request)
        except TimeoutError:
            client.failed("timeout")
        except ConnectionRefusedError:
            client.failed("connection refused")
        except LoginRefusedError as error:
            client.failed(str(error))
        except ssl.SSLError:
            client.failed("TLS handshake failed")
        except OSError:
            client.failed("connection reset")
        except ProtocolViolation as error:
            client.failed(str(error))

    await asyncio.gather(*(one(*pair) for pair in requests))


class _Client:
    def __init__(self, recorder: Recorder, lite: bool) -> None:
        self._recorder = recorder
        self._reader = ReplyReader(keep=True, lite=lite)

    async def run(
        self,
        address: tuple[str, int] | str,
        tls: ssl.SSLContext | None,
        login: Login | None,
        store: bytes,
        read: bytes,
    ) -> None:
        began = perf_counter_ns()
        if isinstance(address, str):
            reader, writer = await asyncio.open_unix_connection(address)
        else:
            reader, writer = await asyncio.open_connection(*address, ssl=tls)
        try:
            if login is not None:
                writer.write(login.request)
                login.check(await reader.readline())
            self._note("connect", began)
            self._streams = reader, writer
            stored = await self._ask("set", store)
            if stored != b"STORED":
                self.failed(_text(stored))
            found = await self._ask("get", read)
            counts = self._recorder.counts
            if found == []:
                counts.misses += 1
            elif isinstance(found, list) and store.endswith(b"\r\n%b\r\n" % found[0].value):
                counts.hits += 1
            else:
                self.failed("wrong value" if isinstance(found, list) else _text(found))
        finally:
            writer.close()

    async def _ask(self, kind: str, request: bytes) -> object:
        reader, writer = self._streams
        began = perf_counter_ns()
        writer.write(request)
        counts = self._recorder.counts
        counts.sent += len(request)
        while True:
            data = await reader.read(_READ_BYTES)
            if not data:
                raise ConnectionResetError
            counts.received += len(data)
            replies = self._reader.feed(data)
            if replies:
                self._note(kind, began)
                counts.operations += 1
                return replies[0]

    def _note(self, kind: str, began: int) -> None:
        now = perf_counter_ns()
        self._recorder.last = now
        tally = self._recorder.response[kind]
        microseconds = (now - began) // 1000
        tally[microseconds] = tally.get(microseconds, 0) + 1

    def failed(self, kind: str) -> None:
        errors = self._recorder.counts.errors
        errors[kind] = errors.get(kind, 0) + 1
        self._recorder.last = perf_counter_ns()


def _text(reply: object) -> str:
    return reply.decode("latin-1")[:100] if isinstance(reply, bytes) else "an unexpected reply"
