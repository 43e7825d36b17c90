"""A burst of new clients: each connects, sets its own key, gets it and disconnects."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

from memlite.client.address import Address
from memlite.client.connection import Connection
from memlite.client.errors import ConnectionLostError
from memlite.client.login import TextLogin
from memlite.client.replies import Reply, ReplyError, Shape
from memlite.client.scanner import Outcome
from memlite.client.transport import open_transport
from memlite.loadtest.clients.admission import RefusedError
from memlite.loadtest.clients.resp_burst import run_resp_client
from memlite.loadtest.dialects import Dialect
from memlite.loadtest.limits import what_failed
from memlite.loadtest.recorder import Recorder
from memlite.protocol import replies

if TYPE_CHECKING:
    from memlite.loadtest.operations import Operation

__all__ = ["burst"]


async def burst(
    address_of: Callable[[bytes], Address],
    requests: "Sequence[tuple[Operation, Operation]]",
    *,
    patience: float,
    recorder: Recorder,
    login: TextLogin | None = None,
    tls: ssl.SSLContext | None = None,
    dialect: Dialect = Dialect.MEMCACHED,
) -> None:
    """Run a client for each element of `requests`, and return when all have disconnected.

    Args:
        address_of: returns the address to which a request is sent.
        requests: each client's set and get.
        patience: seconds after which a client gives up.
        recorder: takes the measurements: ``connect``, ``set`` and ``get``.
        login: sent first, as part of ``connect``; None for none.
        tls: encrypts connections; None for plain text.
        dialect: the protocol that the server speaks.

    Raises:
        RefusedError: the server does not serve all of them.
    """
    refused: list[RefusedError] = []

    async def one(store: "Operation", read: "Operation") -> None:
        client = _Client(recorder, dialect)
        try:
            async with asyncio.timeout(patience):
                where = address_of(store.request)
                if dialect is Dialect.RESP:
                    await client.run_directly(where, store.request, read.request)
                else:
                    await client.run(where, tls, login, store.request, read.request)
        except ConnectionLostError as error:
            unreadable = isinstance(error.cause, ReplyError)
            client.failed(str(error.cause) if unreadable else "connection reset")
        except RefusedError as error:
            refused.append(error)
        except OSError as error:
            client.failed(what_failed(error))

    await asyncio.gather(*(one(*pair) for pair in requests))
    if refused:
        raise refused[0]


class _Client:
    def __init__(self, recorder: Recorder, dialect: Dialect) -> None:
        self._recorder = recorder
        self._items = Shape.ITEM if dialect is Dialect.LITE else Shape.ITEMS

    async def run(
        self,
        address: Address,
        tls: ssl.SSLContext | None,
        login: TextLogin | None,
        store: bytes,
        read: bytes,
    ) -> None:
        began = perf_counter_ns()
        connection = await open_transport(
            lambda: Connection(name=str(address), timeout=None), address, tls=tls, login=login
        )
        counts = self._recorder.counts
        connected = perf_counter_ns()
        try:
            stored = await self._ask(connection, "set", store, Shape.LINE)
            # Only now is the client known to have been admitted.
            self._note("connect", began, connected)
            if stored.line != b"STORED":
                self.failed(stored.line.decode("latin-1")[:100])
            found = await self._ask(connection, "get", read, self._items)
            items = found.items
            if found.line != b"END":
                self.failed(found.line.decode("latin-1")[:100])
            elif not items:
                counts.misses += 1
            elif store.endswith(b"\r\n%b\r\n" % items[0].value):
                counts.hits += 1
            else:
                self.failed("wrong value")
        finally:
            counts.sent += connection.sent
            counts.received += connection.received
            connection.abort()

    async def run_directly(self, address: Address, store: bytes, read: bytes) -> None:
        """Run a client of a store without memlite in front of it."""
        counts = self._recorder.counts

        def note(kind: str, began: int) -> None:
            self._note(kind, began, perf_counter_ns())
            counts.operations += kind != "connect"

        try:
            (stored, found), received = await run_resp_client(address, (store, read), note)
        except ReplyError as error:
            self.failed(str(error))
            return
        counts.sent += len(store) + len(read)
        counts.received += received
        if stored != b"STORED":
            self.failed(_shown(stored))
        if found == 1:
            counts.hits += 1
        elif found == 0:
            counts.misses += 1
        else:
            self.failed(_shown(found))

    async def _ask(self, connection: Connection, kind: str, request: bytes, shape: Shape) -> Reply:
        began = perf_counter_ns()
        reply = await connection.send(request, shape)
        if reply.line == replies.TOO_MANY_CONNECTIONS.strip():
            raise RefusedError("too many open connections")
        self._note(kind, began, perf_counter_ns())
        self._recorder.counts.operations += 1
        return reply

    def _note(self, kind: str, began: int, ended: int) -> None:
        self._recorder.last = max(self._recorder.last, ended)
        tally = self._recorder.response[kind]
        microseconds = (ended - began) // 1000
        tally[microseconds] = tally.get(microseconds, 0) + 1

    def failed(self, kind: str) -> None:
        errors = self._recorder.counts.errors
        errors[kind] = errors.get(kind, 0) + 1
        self._recorder.last = perf_counter_ns()


def _shown(outcome: Outcome) -> str:
    return outcome.decode("latin-1")[:100] if isinstance(outcome, bytes) else "an unexpected value"
