"""The lite dialect on a backend that must be awaited: ordered replies, and failures."""

from tests.unit.server.execution.test_pipelined import serving


async def test_replies_come_in_order():
    async with serving(dialect="lite") as one:
        await one.backend.store(b"a", b"1")
        one.backend.gate.clear()
        one.send(b"get a\r\nget\r\nset b 1\r\n22\r\nset x\r\nget b\r\nget c\r\nnonsense\r\n")
        await one.under_way(3)  # storing a and b, reading c; b is read once it is stored
        one.backend.gate.set()
        await one.expect(
            b"VALUE a 1\r\n1\r\nEND\r\n"
            b"INVALID\r\n"
            b"STORED\r\n"
            b"NOT_STORED\r\n"
            b"VALUE b 1\r\n2\r\nEND\r\n"
            b"END\r\n"
            b"ERROR\r\n"
        )
        one.send(b"get a\r\nquit\r\nget a\r\n")
        assert await one.reader.read() == b"VALUE a 1\r\n1\r\nEND\r\n"


async def test_items_from_a_near_cache_have_no_flags_in_the_reply():
    async with serving(near_cache=1 << 20, dialect="lite") as one:
        await one.ask(b"set a 1\r\nx\r\n", b"STORED\r\n")
        for _ in range(200):  # enough for some to be sampled
            await one.ask(b"get a\r\n", b"VALUE a 1\r\nx\r\nEND\r\n")
        assert one.server.counters.get_hits == 200
        assert one.server.sampler.histograms["get"].count


async def test_a_failing_backend():
    async with serving(dialect="lite") as one:
        one.backend.failing = True
        await one.ask(b"get a\r\nset a 1\r\nx\r\n", b"SERVER_ERROR down\r\n" * 2)
        one.backend.failing = False
        await one.ask(b"get a\r\n", b"END\r\n")
        assert one.server.counters.storage_errors == 2


async def test_there_is_no_negotiation():
    """Even with settings that allow it; the command line would reject them."""
    async with serving(dialect="lite", protocol="auto") as one:
        one.send(b"\x80\x0a" + bytes(22))
        assert await one.reader.read() == b""
