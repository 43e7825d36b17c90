"""Less usual forms of commands have the same results in C and in Python, on items in any state."""

import random
import re
import sys
from unittest.mock import patch

import pytest

from memlite.config import Config
from memlite.protocol.packets import Opcode
from memlite.server.execution import runner
from memlite.server.execution.runner import BinaryFallback
from memlite.server.execution.text_commands import TextCommands
from tests.support.packets import count, packet, store, touch
from tests.unit.server.execution.test_native_runner import compare
from tests.unit.server.execution.test_shortcuts import BinaryClient, Client, in_c

pytestmark = in_c

STATES = (
    b"set %b 0 0 2\r\n10\r\n", b"set %b 7 100 3\r\n998\r\n", b"set %b 0 1 1\r\n9\r\n",
    b"set %b 0 0 2\r\n10\r\ngets %b\r\n", b"set %b 5 100 2\r\n99\r\ngets %b\r\n",
    b"set %b 0 0 3\r\nabc\r\nmd %b I T90\r\n", b"set %b 3 0 600\r\n" + b"v" * 600 + b"\r\n",
    b"delete %b\r\n", b"set %b 0 0 20\r\n18446744073709551615\r\n", b"set %b 0 0 3\r\n 7 \r\n",
    b"mg %b N30\r\n", b"ms %b 2 E77\r\n12\r\n", b"set %b 0 0 3\r\nabc\r\nget %b\r\nget %b\r\n",
)  # fmt: skip
"""Commands that leave items which are plain, expire, have a cas unique, flags of meta, or none."""

TEXT = (
    b"gets K\r\n", b"gets K K2\r\n", b"gets K K2 K\r\n", b"gets absent K K2 other\r\n",
    b"gat E K\r\n", b"gat E K K2\r\n", b"gat E K absent K\r\n", b"gats E K\r\n",
    b"gats E K K2 K\r\n", b"gats E absent\r\n", b"touch K E\r\n",
    b"gats E K K2 absent K3 K4 K5\r\n",
    b"cas K 0 E S 1\r\nV\r\n", b"cas K 1 E S U\r\nV\r\n", b"add K 0 E S\r\nV\r\n",
    b"replace K 0 E S\r\nV\r\n", b"incr K D\r\n", b"decr K D\r\n", b"incr K D noreply\r\n",
    b"append K 0 0 S\r\nV\r\n", b"set K 0 0 S\r\nV\r\n", b"delete K\r\n", b"get K\r\n",
    b"mg K c v\r\n", b"mg K v\r\n", b"mg K TE v\r\n", b"mg K t TE s\r\n", b"mg K TE t c f k\r\n",
    b"mg K h l t v\r\n", b"mg K h l t u\r\n", b"mg K h l TE Oabc q\r\n", b"mg K N30 v\r\n",
    b"mg K N30 R30 v t\r\n", b"mg K R95 TE v c\r\n", b"mg K TE R95 v\r\n", b"mg K R0 v\r\n",
    b"mg K N30 TE h v q\r\n", b"mg K u v TE\r\n", b"mg K CU v\r\n", b"mg K T v\r\n",
    b"mg K R5x\r\n",
    b"ms K S TE\r\nV\r\n", b"ms K S F5 TE q\r\nV\r\n", b"ms K S c\r\nV\r\n", b"ms K S I\r\nV\r\n",
    b"ms K S CU\r\nV\r\n", b"ms K S C1 c\r\nV\r\n", b"ms K S C0\r\nV\r\n",
    b"ms K S CU TE c s q\r\nV\r\n",
    b"ms K S C99999 I c\r\nV\r\n", b"ms K S C1 I TE\r\nV\r\n", b"ms K S MR CU c\r\nV\r\n",
    b"ms K S ME c k\r\nV\r\n", b"ms K S ME TE q\r\nV\r\n", b"ms K S MR TE c\r\nV\r\n",
    b"ms K S MA c s\r\nV\r\n", b"ms K S MP TE F9 Oz\r\nV\r\n", b"ms K S MA N60 c\r\nV\r\n",
    b"ms K S MS F2 s k Oab\r\nV\r\n", b"ms K S ME C1\r\nV\r\n", b"ms K S MA CU q\r\nV\r\n",
    b"ms K S E88 c\r\nV\r\n", b"ms K S Ms\r\nV\r\n", b"ms K S MX\r\nV\r\n", b"ms K S MSET\r\nV\r\n",
    b"ms K S q\r\nVV\r\n\r\n", b"ms K S s c\r\nV\r\n", b"ms K S F4294967296\r\nV\r\n",
    b"md K q\r\n", b"md K TE\r\n", b"md K I\r\n", b"md K I TE q\r\n", b"md K CU\r\n",
    b"md K C1 q k\r\n",
    b"md K x\r\n", b"md K x I TE\r\n", b"md K E5 I\r\n", b"md K C1 I\r\n", b"md K CU I Oab\r\n",
    b"ma K\r\n", b"ma K c v\r\n", b"ma K q\r\n", b"ma K N0 J13 v\r\n", b"ma K NE J5 TE t c v\r\n",
    b"ma K TE N60 t v k\r\n", b"ma K TE t v\r\n", b"ma K t TE c\r\n", b"ma K DD MD\r\n",
    b"ma K CU v\r\n",
    b"ma K N0 q\r\n", b"ma K MI DD N60 t\r\n", b"ma K E5 v\r\n", b"ma K J7 v\r\n", b"ma K t\r\n",
)  # fmt: skip

EXPTIMES = (0, 0, 0, 1, 100, 100, 2592000, 2592001, 2**31 - 1, -1, 2**31)
VALUES = (b"", b"7", b"99", b"100", b"abcd", b"18446744073709551615", b"v" * 600, b" 1", b"-5")
KEYS = (b"a", b"b", b"c", b"k" * 250)


class Shown(Client):
    """A connection whose cas uniques are compared, too."""

    def without_uniques(self, replies):
        return replies


class ShownBinary(BinaryClient):
    """A connection whose cas uniques are compared, with the binary protocol."""

    def without_uniques(self, replies):
        return replies


def text(choice, client):
    """Return a command, with the item's cas unique at this client."""
    form, value = choice.choice(TEXT), choice.choice(VALUES)
    if choice.random() < 0.3:
        form = choice.choice(STATES).replace(b"%b", b"K")
        return form.replace(b"K", choice.choice(KEYS))
    key, other = choice.choice(KEYS), choice.choice(KEYS)
    head, end, rest = form.partition(b"\r\n")
    unique = b"%d" % peeked(client, key) if b"U" in head else b""
    words = []
    for word in head.split(b" "):
        for letter, filling in (
            (b"K2", other), (b"K3", b"none"), (b"K4", b"b"), (b"K5", b"a"), (b"K", key),
            (b"S", b"%d" % len(value)), (b"D", b"%d" % choice.choice((0, 1, 5, 95, 2**64 - 1))),
            (b"E", b"%d" % choice.choice(EXPTIMES)), (b"TE", b"T%d" % choice.choice(EXPTIMES)),
            (b"NE", b"N%d" % choice.choice(EXPTIMES)), (b"U", unique), (b"CU", b"C" + unique),
            (b"DD", b"D%d" % choice.choice((0, 1, 90))),
        ):  # fmt: skip
            if word == letter:
                words.append(filling)
                break
        else:
            words.append(word)
    return b" ".join(words) + end + rest.replace(b"V", value)


def peeked(client, key):
    """Return the cas unique of an item; 1 for none, without assigning it."""
    item = client.server.engine.peek(key)
    return 1 if item is None else item.unique or 1


def binary(choice, client):
    """Return a packet."""
    key, value = choice.choice((*KEYS, b"with space")), choice.choice(VALUES)
    cas = peeked(client, key) + choice.choice((0, 0, 1)) if choice.random() < 0.2 else 0
    opcode = choice.choice((
        Opcode.SET, Opcode.SETQ, Opcode.ADD, Opcode.ADDQ, Opcode.REPLACE, Opcode.REPLACEQ,
        Opcode.APPEND, Opcode.APPENDQ, Opcode.PREPEND, Opcode.PREPENDQ, Opcode.INCREMENT,
        Opcode.INCREMENTQ, Opcode.DECREMENT, Opcode.DECREMENTQ, Opcode.GET, Opcode.GETK,
        Opcode.GETQ, Opcode.GETKQ, Opcode.DELETE, Opcode.DELETEQ, Opcode.TOUCH, Opcode.GAT,
        Opcode.GATQ, Opcode.GATK, Opcode.GATKQ, Opcode.NOOP,
    ))  # fmt: skip
    exptime = choice.choice((0, 0, 1, 100, 2592001, 2**31, 2**32 - 1))
    name = opcode.name
    if name.startswith(("SET", "ADD", "REPLACE")):
        return store(opcode, key, value, choice.choice((0, 0, 5, 2**32 - 1)), exptime, cas=cas)
    if "PEND" in name:
        return packet(opcode, key, b"", value, cas=cas)
    if "CREMENT" in name:
        delta = choice.choice((0, 1, 95, 2**64 - 1))
        return count(opcode, key, delta, choice.choice((5, 2**64 - 1)), exptime, cas=cas)
    if name == "TOUCH" or name.startswith("GAT"):
        return touch(opcode, key, exptime, cas=cas)
    return packet(opcode) if name == "NOOP" else packet(opcode, key, cas=cas)


SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2)))
CONFIGS = [
    pytest.param(Config(), id="usual"),
    pytest.param(Config(disable_cas=True), id="no uniques"),
    pytest.param(Config(memory_limit=1), id="evicts"),
    pytest.param(Config(memory_limit=1, disable_evictions=True), id="is full"),
]


def prepare(pair, config):
    """Fill the memory if it is small, and make the clients speak the text protocol."""
    data = b"mn\r\n"
    if config.memory_limit == 1:
        data = b"".join(b"set fill%d 0 0 3000\r\n%b\r\n" % (n, b"v" * 3000) for n in range(500))
    compare(pair, data)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_text_commands(seed, config):
    choice = random.Random(seed)
    pair = [Shown(shortcuts=True, native=native, config=config) for native in (True, False)]
    prepare(pair, config)
    for _ in range(500):
        drawn = [text(choice, pair[0]) for _ in range(choice.choice((1, 1, 2, 5)))]
        compare(pair, b"".join(drawn))
        if choice.random() < 0.05:
            compare(pair, b"TICK")
        if choice.random() < 0.01:
            compare(pair, b"flush_all\r\n")


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_packets(seed, config):
    choice = random.Random(seed)
    pair = [ShownBinary(shortcuts=True, native=native, config=config) for native in (True, False)]
    texts = [Shown(shortcuts=True, native=False) for _ in pair]
    for one, other in zip(pair, texts, strict=True):  # puts items in any state into its table
        other.server, other.connection = one.server, one.server.connect()
        other.connection.connection_made(other.transport)
    for _ in range(500):
        drawn = [binary(choice, pair[0]) for _ in range(choice.choice((1, 1, 2, 5)))]
        compare(pair, b"".join(drawn))
        if choice.random() < 0.4:
            state = choice.choice(STATES).replace(b"%b", choice.choice(KEYS))
            assert texts[0].send(state) == texts[1].send(state)
        if choice.random() < 0.05:
            compare(pair, b"TICK")


LARGEST = 1024 * 1024 - 250 - 60


@pytest.mark.parametrize("more", [-300, -60, -1, 0, 1, 60, 300])
def test_values_at_the_largest_size(more):
    pair = [Shown(shortcuts=True, native=native) for native in (True, False)]
    size = LARGEST + more
    value = b"v" * size
    for form in (
        b"ms a %d T100 c\r\n%b\r\n",
        b"ms a %d MR F5\r\n%b\r\n",
        b"ms b %d ME q\r\n%b\r\n",
    ):
        compare(pair, form % (size, value))
    for data in (b"ms a 40 MA\r\n", b"ms a 40 MP T3 c s\r\n", b"append b 0 0 40\r\n"):
        compare(pair, data + b"w" * 40 + b"\r\n")
    compare(pair, b"gets a\r\nmg a s c TE\r\ngats 0 a b\r\nmn\r\n")


OF_OBJECTS = (
    b"md a I\r\n", b"md a I T9 q\r\n", b"md a CU\r\n", b"md a C1 k\r\n", b"md c C1\r\n",
    b"md a I\r\nmd a I\r\nmd a I T9\r\nmd a I T0\r\nmd a T5 I q\r\n",
)  # fmt: skip
"""Commands that a shared table leaves to Python."""

PLAIN, MORTAL, NUMBERED = (
    b"set a 0 0 2\r\n10\r\n", b"set a 0 100 2\r\n10\r\n", b"set a 0 0 2\r\n10\r\ngets a\r\n",
)  # fmt: skip

WITHOUT_PYTHON = (
    b"gets a\r\n", b"gets a b a c\r\n", b"mg a c v\r\n", b"cas a 0 0 1 12345\r\nx\r\n",
    b"add a 0 0 1\r\nx\r\n", b"ms a 1 T100\r\nx\r\n", b"ms a 1 F5 T0 q\r\nx\r\n",
    b"ms a 1 c\r\nx\r\n", b"ms c 1 c T9\r\nx\r\n", b"ms a 1 I\r\nx\r\n",
    b"ms a 1 ME c\r\nx\r\n", b"ms c 1 ME s\r\nx\r\n", b"ms a 1 MR T9\r\nx\r\n",
    b"ms c 1 MR\r\nx\r\n", b"ms a 1 MA c s\r\nx\r\n", b"ms a 1 MP k\r\nx\r\n",
    b"ms c 1 MA\r\nx\r\n", b"ms a 1 CU c\r\nx\r\n", b"ms a 1 C1\r\nx\r\n", b"ms c 1 C1\r\nx\r\n",
    b"gat 100 a\r\n", b"gat 0 a b c a\r\n", b"gats 100 a\r\n", b"gats 0 a b c a\r\n",
    b"gats 0 c\r\n", b"mg a T100 v\r\n", b"mg a t T0 c\r\n", b"mg c T100 h\r\n",
    b"mg a h l t v\r\n", b"mg a u h\r\n", b"mg a N30 R30 v\r\n", b"mg a T90 R5 q k Oab\r\n",
    b"ma a N0 J1 T600 v\r\n", b"ma c N0 J5 T60 t v\r\n", b"ma a T60 t c q\r\n",
    b"ma c N60 t k v\r\n", b"ma a t T0 c\r\n", b"ma b v\r\n",
    b"incr a 995\r\n", b"ma a D995 c t v\r\n", b"incr b 1\r\n", b"decr b 1 noreply\r\n",
    b"md a T9\r\n", b"md c q\r\n",
)  # fmt: skip


def carried_out(client, data):
    """Return whether a run alone carries out all of the data."""
    run = client.connection._services.runner.text
    with patch.dict(runner.SHORTCUTS, clear=True), patch.object(TextCommands, "try_get") as hit:
        found = run(data, [])
    return found is not None and not hit.called


@pytest.mark.parametrize("state", [PLAIN, MORTAL, NUMBERED], ids=["plain", "mortal", "numbered"])
@pytest.mark.parametrize("data", (*WITHOUT_PYTHON, *OF_OBJECTS))
def test_commands_that_need_no_python(data, state):
    client = Shown(shortcuts=True)
    client.send(state + b"set b 0 0 1\r\nx\r\n")
    data = re.sub(b"CU", lambda _: b"C%d" % client.unique(b"a"), data)
    assert carried_out(client, data)


PACKETS = (
    packet(Opcode.GET, b"a"), packet(Opcode.GETKQ, b"a"), packet(Opcode.APPEND, b"a", b"", b"7"),
    packet(Opcode.PREPENDQ, b"a", b"", b"7"), count(Opcode.INCREMENT, b"a", 1),
    count(Opcode.DECREMENTQ, b"a", 1), count(Opcode.INCREMENT, b"a", 995),
    store(Opcode.SET, b"a", b"xyz"),
    store(Opcode.SET, b"a", b"x", 5, 100), store(Opcode.SETQ, b"a", b"x", 0, 100),
    store(Opcode.SET, b"c", b"x", 5, 100), store(Opcode.SETQ, b"a", b"xyz"),
    store(Opcode.ADD, b"a", b"x"), store(Opcode.ADDQ, b"c", b"x", 0, 100),
    store(Opcode.REPLACE, b"a", b"x", 5, 100), store(Opcode.REPLACEQ, b"a", b"xyz"),
    store(Opcode.REPLACE, b"c", b"x"), store(Opcode.SET, b"a", b"x", cas=12345),
    store(Opcode.SET, b"c", b"x", cas=1), packet(Opcode.APPEND, b"c", b"", b"7"),
    touch(Opcode.TOUCH, b"a", 100), touch(Opcode.TOUCH, b"c", 0), touch(Opcode.GAT, b"a", 0),
    touch(Opcode.GATQ, b"c", 0), touch(Opcode.GATK, b"a", 100), touch(Opcode.GATKQ, b"a", 0),
    touch(Opcode.GATK, b"c", 0), count(Opcode.INCREMENT, b"c", 1, 5, 100),
    count(Opcode.DECREMENTQ, b"c", 1, 5), count(Opcode.INCREMENT, b"c", 1, 5, 0xFFFFFFFF),
    count(Opcode.INCREMENT, b"b", 1), packet(Opcode.DELETE, b"a"), packet(Opcode.DELETEQ, b"c"),
)  # fmt: skip


@pytest.mark.parametrize("state", [PLAIN, MORTAL, NUMBERED], ids=["plain", "mortal", "numbered"])
@pytest.mark.parametrize("data", PACKETS)
def test_packets_that_need_no_python(data, state):
    client = Shown(shortcuts=True)
    client.send(state + b"set b 0 0 1\r\nx\r\n")
    with patch.object(BinaryFallback, "__call__") as counterpart:
        assert client.connection._services.runner.binary(data, []) is not None
    assert not counterpart.called


def test_no_reference_is_lost():
    client, other = Shown(shortcuts=True), ShownBinary(shortcuts=True)
    choice = random.Random(3)
    lines = [text(choice, client) for _ in range(2000)]
    drawn = [binary(choice, other) for _ in range(2000)]

    def rounds(number):
        for _ in range(number):
            for data in (*WITHOUT_PYTHON, *OF_OBJECTS):
                client.send(PLAIN + data)
            for data in PACKETS:
                other.send(store(Opcode.SET, b"a", b"10") + data)
        for at in range(0, 2000, 10):
            client.send(b"".join(lines[at : at + 10]))
            other.send(b"".join(drawn[at : at + 10]))

    rounds(20)
    rounds(20)
    blocks = sys.getallocatedblocks()
    rounds(200)
    assert sys.getallocatedblocks() - blocks < 500
