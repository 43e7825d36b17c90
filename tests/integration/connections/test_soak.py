"""Two hundred connections mix all commands, and each checks every reply."""

import asyncio
import os
import random
import resource
from collections.abc import Callable

import pytest

from tests.support.servers import RunningServer

CONNECTIONS = 200
SECONDS = float(os.environ.get("MEMLITE_TEST_SOAK_SECONDS", "5"))


class Client:
    """A connection with keys of its own, so that it knows the expected replies."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)
        self.prefix = b"client%d:" % number
        self.model: dict[bytes, bytes] = {}
        self.checked = 0

    def request(self) -> tuple[bytes, bytes]:
        """Return the next command and its expected reply."""
        key = self.prefix + b"%d" % self.random.randrange(20)
        return self.random.choice(
            [self.get, self.get, self.set, self.set, self.add, self.replace, self.append, self.cas,
             self.incr, self.delete, self.touch, self.multiget, self.noreply]
        )(key)  # fmt: skip

    def get(self, key: bytes) -> tuple[bytes, bytes]:
        return b"get %b\r\n" % key, self._block(key) + b"END\r\n"

    def multiget(self, key: bytes) -> tuple[bytes, bytes]:
        keys = [self.prefix + b"%d" % number for number in range(20)]
        blocks = b"".join(self._block(one) for one in keys)
        return b"get %b\r\n" % b" ".join(keys), blocks + b"END\r\n"

    def set(self, key: bytes) -> tuple[bytes, bytes]:
        value = self.model[key] = self._value()
        return b"set %b 0 0 %d\r\n%b\r\n" % (key, len(value), value), b"STORED\r\n"

    def noreply(self, key: bytes) -> tuple[bytes, bytes]:
        value = self.model[key] = self._value()
        sent, reply = self.get(key)
        return b"set %b 0 0 %d noreply\r\n%b\r\n" % (key, len(value), value) + sent, reply

    def add(self, key: bytes) -> tuple[bytes, bytes]:
        return self._conditional(b"add", key, stores=key not in self.model)

    def replace(self, key: bytes) -> tuple[bytes, bytes]:
        return self._conditional(b"replace", key, stores=key in self.model)

    def append(self, key: bytes) -> tuple[bytes, bytes]:
        old = self.model.get(key)
        if old is not None and len(old) > 100_000:
            return self.delete(key)
        sent, reply = self._conditional(b"append", key, stores=old is not None)
        if old is not None:
            self.model[key] = old + self.model[key]
        return sent, reply

    def _conditional(self, name: bytes, key: bytes, *, stores: bool) -> tuple[bytes, bytes]:
        value = self._value()
        if stores:
            self.model[key] = value
        sent = b"%b %b 0 0 %d\r\n%b\r\n" % (name, key, len(value), value)
        return sent, b"STORED\r\n" if stores else b"NOT_STORED\r\n"

    def cas(self, key: bytes) -> tuple[bytes, bytes]:
        reply = b"EXISTS\r\n" if key in self.model else b"NOT_FOUND\r\n"
        return b"cas %b 0 0 1 0\r\n1\r\n" % key, reply

    def incr(self, key: bytes) -> tuple[bytes, bytes]:
        number = self.random.randrange(10**6, 10**7 - 1)
        self.model[key] = b"%d" % (number + 1)
        sent = b"set %b 0 0 7\r\n%d\r\nincr %b 1\r\n" % (key, number, key)
        return sent, b"STORED\r\n%d\r\n" % (number + 1)

    def delete(self, key: bytes) -> tuple[bytes, bytes]:
        found = self.model.pop(key, None) is not None
        return b"delete %b\r\n" % key, b"DELETED\r\n" if found else b"NOT_FOUND\r\n"

    def touch(self, key: bytes) -> tuple[bytes, bytes]:
        found = key in self.model
        return b"touch %b 1000\r\n" % key, b"TOUCHED\r\n" if found else b"NOT_FOUND\r\n"

    def _value(self) -> bytes:
        return self.random.randbytes(self.random.choice([0, 1, 10, 100, 1000, 20_000]))

    def _block(self, key: bytes) -> bytes:
        value = self.model.get(key)
        return b"" if value is None else b"VALUE %b 0 %d\r\n%b\r\n" % (key, len(value), value)

    async def run(self, port: int, until: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            depth = self.random.choice([1, 1, 1, 5, 30])
            pairs = [self.request() for _ in range(depth)]
            writer.write(b"".join(sent for sent, _ in pairs))
            await writer.drain()
            for sent, expected in pairs:
                got = await asyncio.wait_for(reader.readexactly(len(expected)), 60)
                assert got == expected, sent[:200]
                self.checked += 1
        writer.close()
        await writer.wait_closed()


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_many_connections_get_all_replies(start: Callable[..., RunningServer]) -> None:
    server = start("-m", "1024")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < CONNECTIONS + 100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (CONNECTIONS + 100, hard))
    clients = [Client(number) for number in range(CONNECTIONS)]

    async def all_of_them() -> None:
        until = asyncio.get_running_loop().time() + SECONDS
        await asyncio.gather(*(client.run(server.port, until) for client in clients))

    asyncio.run(all_of_them())
    assert all(client.checked for client in clients)
    stats = server.stats()
    assert int(stats["curr_items"]) == sum(len(client.model) for client in clients)
    assert stats["evictions"] == "0"
    assert server.log.read_text() == ""
