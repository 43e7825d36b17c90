"""Several workers (``-t``) reply like one memcached, whichever connection carries a command.

A fixed stream of commands is spread over connections to different workers, one after the other,
and over as many connections to memcached.
"""

import contextlib
import random
from collections.abc import Iterator

import pytest

from tests.support.servers import RunningServer, Wire, needs_memcached, running

pytestmark = needs_memcached

CONNECTIONS = 6
COMMANDS = 1500
COUNTERS = (
    "cmd_get", "cmd_set", "cmd_touch", "cmd_meta", "cmd_flush", "get_hits", "get_misses",
    "get_expired", "get_flushed", "delete_hits", "delete_misses", "incr_hits", "incr_misses",
    "decr_hits", "decr_misses", "cas_hits", "cas_misses", "cas_badval", "touch_hits",
    "touch_misses", "curr_items", "total_items", "curr_connections", "reclaimed",
    "expired_unfetched",
)  # fmt: skip


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[RunningServer, RunningServer]]:
    with running("memlite-workers") as ours, running("memcached", "-t", "3") as theirs:
        yield ours, theirs


def commands(chance: random.Random) -> Iterator[bytes]:
    """Yield commands on few keys, so that most of them find what another worker has stored."""
    keys = [b"a", b"b", b"c:1", b"d" * 250]
    for _ in range(COMMANDS):
        key = chance.choice(keys)
        value = b"%d" % chance.randrange(10 ** chance.randrange(1, 12))
        exptime = chance.choice([0, 0, 100, -1])
        name = chance.choice([b"set", b"set", b"add", b"replace", b"append", b"prepend"])
        yield chance.choice(
            [
                b"%b %b %d %d %d\r\n%b\r\n"
                % (name, key, chance.randrange(3), exptime, len(value), value),
                b"get %b %b\r\n" % (key, chance.choice(keys)),
                b"delete %b\r\n" % key,
                b"incr %b %d\r\n" % (key, chance.randrange(1000)),
                b"decr %b %d\r\n" % (key, chance.randrange(1000)),
                b"touch %b %d\r\n" % (key, exptime),
                b"gat %d %b\r\n" % (exptime, key),
                b"mg %b v f s k\r\n" % key,
                b"mg %b N30 v\r\n" % key,
                b"ms %b %d T%d\r\n%b\r\n" % (key, len(value), max(exptime, 0), value),
                b"md %b %b\r\n" % (key, chance.choice([b"", b"I", b"q"])),
                b"ma %b D%d v\r\n" % (key, chance.randrange(100)),
            ]
        )


def reply(wire: Wire, command: bytes) -> bytes:
    wire.send(command + b"mn\r\n")
    return wire.until(b"MN\r\n")


def test_a_stream_over_several_connections(pair: tuple[RunningServer, RunningServer]) -> None:
    """Replies equal memcached's. Counters equal those of a single memlite process instead.

    It counts more items as expired than memcached does.
    """
    chance = random.Random(7)
    with contextlib.ExitStack() as stack:
        alone = stack.enter_context(running("memlite", "-t", "1"))
        ours, theirs, single = (
            [stack.enter_context(server.connect()) for _ in range(CONNECTIONS)]
            for server in (*pair, alone)
        )
        for command in commands(chance):
            place = chance.randrange(CONNECTIONS)
            expected = reply(theirs[place], command)
            assert reply(ours[place], command) == expected, command
            assert reply(single[place], command) == expected, command
        shown, wanted = (wires[0].stats() for wires in (ours, single))
        assert {name: shown[name] for name in COUNTERS} == {name: wanted[name] for name in COUNTERS}


def test_cas_uniques_hold_on_all_connections(pair: tuple[RunningServer, RunningServer]) -> None:
    server, _ = pair
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(CONNECTIONS)]
        seen: list[int] = []
        for turn in range(60):
            writer, reader = wires[turn % CONNECTIONS], wires[(turn + 1) % CONNECTIONS]
            assert writer.ask(b"set u 0 0 1\r\nx\r\n") == b"STORED\r\n"
            reader.send(b"gets u\r\n")
            seen.append(int(reader.until(b"END\r\n").split()[4]))
            other = wires[(turn + 2) % CONNECTIONS]
            assert other.ask(b"cas u 0 0 1 %d\r\ny\r\n" % (seen[-1] + 1)) == b"EXISTS\r\n"
            assert other.ask(b"cas u 0 0 1 %d\r\ny\r\n" % seen[-1]) == b"STORED\r\n"
            assert writer.ask(b"cas u 0 0 1 %d\r\nz\r\n" % seen[-1]) == b"EXISTS\r\n"
    assert seen == sorted(set(seen)), "uniques of a key ascend"
