"""A new client of a store: it connects, sets its own key, gets it and disconnects."""

import asyncio
from collections.abc import Callable
from time import perf_counter_ns

from memlite.client.address import Address
from memlite.client.scanner import Outcome
from memlite.loadtest.clients.resp import RespScanner

__all__ = ["run_resp_client"]

_READ = 64 * 1024


async def run_resp_client(
    address: Address,
    requests: tuple[bytes, bytes],
    note: Callable[[str, int], None],
) -> tuple[list[Outcome], int]:
    """Run a client.

    Args:
        address: the store's, a host and port.
        requests: a SET and a GET.
        note: called with ``connect``, ``set`` and ``get``, and when each began, in nanoseconds.

    Returns:
        The outcomes of the two replies, see `RespScanner`, and their size in bytes.

    Raises:
        OSError: the connection fails.
        ReplyError: the store does not speak its protocol.
    """
    began = perf_counter_ns()
    reader, writer = await asyncio.open_connection(address.host, address.port)
    scanner = RespScanner()
    outcomes: list[Outcome] = []
    received = 0
    try:
        note("connect", began)
        for kind, request in zip(("set", "get"), requests, strict=True):
            began = perf_counter_ns()
            writer.write(request)
            found: list[Outcome] = []
            while not found:
                data = await reader.read(_READ)
                if not data:
                    raise ConnectionResetError
                received += len(data)
                found = scanner.feed(data)
            note(kind, began)
            outcomes += found
    finally:
        writer.transport.abort()
    return outcomes, received
