"""The text parser: each wire case whole, byte by byte, and with trailing input."""

import sys
from dataclasses import replace

import pytest

from memlite.core.errors import ProtocolViolation
from memlite.protocol import Limits, TextParser, replies
from memlite.protocol.limits import item_total
from memlite.protocol.meta import MetaRequest
from memlite.protocol.numbers import signed, unsigned
from memlite.protocol.text_table import SET_FRAMED

# An item with a short key fits if its value has up to some 900 bytes.
LIMITS = Limits(item_size=1024, commands_per_read=1_000_000)

BAD_FORMAT = b"CLIENT_ERROR bad command line format\r\n"
BAD_CHUNK = b"CLIENT_ERROR bad data chunk\r\n"
BAD_DELTA = b"CLIENT_ERROR invalid numeric delta argument\r\n"
BAD_EXPTIME = b"CLIENT_ERROR invalid exptime argument\r\n"
ERROR = b"ERROR\r\n"

K250 = b"k" * 250
K251 = b"k" * 251
EVERY_BYTE = bytes(range(256))


def plain(argument):
    """Return lists converted recursively, and meta requests as their non-default attributes."""
    if isinstance(argument, MetaRequest):
        nothing = MetaRequest(argument.key, argument.words)
        names = [name for name in dir(argument) if name[0] != "_"]
        asked = {name: getattr(argument, name) for name in names}
        asked = {name: value for name, value in asked.items() if value != getattr(nothing, name)}
        return (argument.key, asked)
    return list(argument) if isinstance(argument, list) else argument


class Recorder:
    """A handler that records calls and their arguments."""

    def __init__(self):
        self.calls = []

    def execute(self, command, arguments):
        if command is SET_FRAMED:
            self.set_framed(*arguments)
        else:
            # Lists are copied, because the handler must not keep the parser's own.
            self.calls.append((command.name, *map(plain, arguments)))

    def hit(self, line):
        return False  # so that every get is recorded in the same way

    def set(self, *arguments):
        self.calls.append(("set", *arguments))

    def reject(self, *arguments):
        self.calls.append(("reject", *arguments))

    def quit(self):
        self.calls.append(("quit",))

    def set_framed(self, key, exptime, framed, noreply):
        """Record a small value as a `set`, since either form is acceptable."""
        head, _, rest = framed.partition(b"\r\n")
        flags, size = map(int, head.removeprefix(b"VALUE %b " % key).split(b" "))
        value = rest.removesuffix(b"\r\nEND\r\n")
        assert framed == b"VALUE %b %d %d\r\n%b\r\nEND\r\n" % (key, flags, size, value)
        assert size == len(value)
        if size < 64 * 1024:
            self.calls.append(("set", key, flags, exptime, value, noreply))
        else:
            self.calls.append(("set_framed", key, exptime, framed, noreply))


class Peer:
    """A parser with its recorder, fed as a connection would feed it."""

    def __init__(self, limits=LIMITS):
        self.parser = TextParser(limits)
        self.recorder = Recorder()

    @property
    def calls(self):
        return self.recorder.calls

    def send(self, *chunks):
        """Feed chunks, and b"" while the parser has a backlog; return all calls so far."""
        for chunk in chunks:
            while self.parser.receive(chunk, self.recorder):
                chunk = b""
        return self.calls


def one_by_one(stream):
    return [stream[index : index + 1] for index in range(len(stream))]


def reject(reply, noreply=False):
    return ("reject", reply, noreply)


def admin(*words, noreply=False):
    return ("admin", list(words), noreply)


# Each case: the input, and the calls it results in.

RETRIEVALS = [
    (b"get a\r\n", [("get", [b"a"])]),
    (b"get a\n", [("get", [b"a"])]),
    (b"get a b c\r\n", [("get", [b"a", b"b", b"c"])]),
    (b"get a a\r\n", [("get", [b"a", b"a"])]),
    (b"get   a    b  \r\n", [("get", [b"a", b"b"])]),
    (b"get a\tb\r\n", [("get", [b"a\tb"])]),
    (b"get \xff\x00\r\n", [("get", [b"\xff\x00"])]),
    (b"get a\r\r\n", [("get", [b"a\r"])]),
    (b"get noreply\r\n", [("get", [b"noreply"])]),
    (b"get / HTTP/1.1\r\n", [("get", [b"/", b"HTTP/1.1"])]),
    (b"get " + K250 + b"\r\n", [("get", [K250])]),
    (b"get " + b" ".join([K250] * 3) + b"\r\n", [("get", [K250] * 3)]),
    (b"get " + K251 + b"\r\n", [reject(BAD_FORMAT)]),
    (b"get a " + K251 + b" b\r\n", [reject(BAD_FORMAT)]),
    (b"get\r\n", [reject(BAD_FORMAT)]),
    (b"get\n", [reject(BAD_FORMAT)]),
    (b"get    \r\n", [reject(BAD_FORMAT)]),
    (b"gets a\r\n", [("gets", [b"a"])]),
    (b"gets  a  b\n", [("gets", [b"a", b"b"])]),
    (b"gets\r\n", [reject(BAD_FORMAT)]),
    (b"gets " + K251 + b"\r\n", [reject(BAD_FORMAT)]),
    (b"gat 0 a\r\n", [("gat", 0, [b"a"])]),
    (b"gat -1 a b\r\n", [("gat", -1, [b"a", b"b"])]),
    (b"gat 2592001 a\r\n", [("gat", 2592001, [b"a"])]),
    (b"gat  10  a \r\n", [("gat", 10, [b"a"])]),
    (b"gat\r\n", [reject(BAD_FORMAT)]),
    (b"gat 0\r\n", [reject(BAD_FORMAT)]),
    (b"gat x a\r\n", [reject(BAD_EXPTIME)]),
    (b"gat 1_0 a\r\n", [reject(BAD_EXPTIME)]),
    (b"gat +1 a\r\n", [reject(BAD_EXPTIME)]),
    (b"gat 0 " + K251 + b"\r\n", [reject(BAD_FORMAT)]),
    (b"gats 100 a b\r\n", [("gats", 100, [b"a", b"b"])]),
    (b"gats 0\r\n", [reject(BAD_FORMAT)]),
    (b"gats 0x1 a\r\n", [reject(BAD_EXPTIME)]),
]

STORES = [
    (b"set a 5 10 3\r\nxyz\r\n", [("set", b"a", 5, 10, b"xyz", False)]),
    (b"set a 5 10 3\nxyz\r\n", [("set", b"a", 5, 10, b"xyz", False)]),
    (b"set a 5 10 3 noreply\r\nxyz\r\n", [("set", b"a", 5, 10, b"xyz", True)]),
    (b"set  a   5 10   3    noreply  \r\nxyz\r\n", [("set", b"a", 5, 10, b"xyz", True)]),
    (b"set a 0 0 0\r\n\r\n", [("set", b"a", 0, 0, b"", False)]),
    (b"set a 0 0 2\r\n\r\n\r\n", [("set", b"a", 0, 0, b"\r\n", False)]),
    (b"set a 0 0 7\r\nget b\r\n\r\n", [("set", b"a", 0, 0, b"get b\r\n", False)]),
    (b"set a 0 0 256\r\n" + EVERY_BYTE + b"\r\n", [("set", b"a", 0, 0, EVERY_BYTE, False)]),
    (b"set a 4294967295 0 1\r\nx\r\n", [("set", b"a", 2**32 - 1, 0, b"x", False)]),
    (b"set a 007 0 01\r\nx\r\n", [("set", b"a", 7, 0, b"x", False)]),
    (b"set a 0 -1 1\r\nx\r\n", [("set", b"a", 0, -1, b"x", False)]),
    (b"set a 0 2147483647 1\r\nx\r\n", [("set", b"a", 0, 2**31 - 1, b"x", False)]),
    (b"set a +5 +10 1\r\nx\r\n", [("set", b"a", 5, 10, b"x", False)]),  # strtoul() and strtol()
    (b"set a 0 0 1 other\r\nx\r\n", [("set", b"a", 0, 0, b"x", False)]),
    (b"set a 0 0 1 noreply other\r\nx\r\n", [("set", b"a", 0, 0, b"x", False)]),
    (b"set a 0 0 1 other noreply\r\nx\r\n", [("set", b"a", 0, 0, b"x", True)]),
    (b"set noreply 0 0 1\r\nx\r\n", [("set", b"noreply", 0, 0, b"x", False)]),
    (b"set a 0 0 1 b\nc\r\nx\r\n", [("set", b"a", 0, 0, b"c", False), reject(BAD_FORMAT)]),
    (
        b"set a\nb 0 0 1\r\nx\r\n",
        [reject(BAD_FORMAT), admin(b"b", b"0", b"0", b"1"), reject(BAD_FORMAT)],
    ),
    (b"set a 0 0\n1\r\nx\r\n", [reject(BAD_FORMAT)] * 3),
    (b"set  0 0 1\r\nget b\r\n", [reject(BAD_FORMAT), ("get", [b"b"])]),
    (b"set a 0  1\r\nget b\r\n", [reject(BAD_FORMAT), ("get", [b"b"])]),
    (b"set " + K250 + b" 0 0 1\r\nx\r\n", [("set", K250, 0, 0, b"x", False)]),
    (b"add a 1 2 3\r\nxyz\r\n", [("add", b"a", 1, 2, b"xyz", False)]),
    (b"add a 1 2 3 noreply\r\nxyz\r\n", [("add", b"a", 1, 2, b"xyz", True)]),
    (b"replace a 1 2 3\r\nxyz\r\n", [("replace", b"a", 1, 2, b"xyz", False)]),
    (b"replace a 1 2 3 noreply\r\nxyz\r\n", [("replace", b"a", 1, 2, b"xyz", True)]),
    (b"append a 1 2 3\r\nxyz\r\n", [("append", b"a", 1, 2, b"xyz", False)]),
    (b"append a 1 2 3 noreply\r\nxyz\r\n", [("append", b"a", 1, 2, b"xyz", True)]),
    (b"prepend a 1 2 3\r\nxyz\r\n", [("prepend", b"a", 1, 2, b"xyz", False)]),
    (b"prepend a 1 2 3 noreply\r\nxyz\r\n", [("prepend", b"a", 1, 2, b"xyz", True)]),
    (b"cas a 1 2 3 4\r\nxyz\r\n", [("cas", b"a", 1, 2, b"xyz", 4, False)]),
    (b"cas a 1 2 3 4 noreply\r\nxyz\r\n", [("cas", b"a", 1, 2, b"xyz", 4, True)]),
    (b"cas a 0 0 1 %d\r\nx\r\n" % (2**64 - 1), [("cas", b"a", 0, 0, b"x", 2**64 - 1, False)]),
]

# The declared length is known, so the value is swallowed and nothing of it read as commands.
BAD_STORES_SWALLOWED = [
    (b"set " + K251 + b" 0 0 5\r\nget b\r\n", [reject(BAD_FORMAT)]),
    (b"set " + K251 + b" 0 0 5 noreply\r\nget b\r\n", [reject(BAD_FORMAT, True)]),
    (b"set " + K251 + b" 0 0 5000\r\n" + b"x" * 5000 + b"\r\n", [reject(BAD_FORMAT)]),
    *(
        (b"%b a %b 0 5%b\r\nget b\r\n" % (name, flags, unique), [reject(BAD_FORMAT)])
        for name, unique in [(b"set", b""), (b"append", b""), (b"cas", b" 1")]
        for flags in (b"x", b"1_0", b"-1", b"0x1", b"4294967296", b"1" * 5000, b"1.0", b"++1", b"+")
        if len(flags) < 1000 or name == b"set"
    ),
    *(
        (b"add a 0 %b 5\r\nget b\r\n" % exptime, [reject(BAD_FORMAT)])
        for exptime in (b"x", b"1_0", b"--1", b"0x1", b"-", b"1.5", b"1" * 30, b"1-", b"+", b"+-1")
    ),
    (b"replace a x 0 5 noreply\r\nget b\r\n", [reject(BAD_FORMAT, True)]),
    *(
        (b"cas a 0 0 5 %b\r\nget b\r\n" % unique, [reject(BAD_FORMAT)])
        for unique in (b"x", b"-1", b"+1", b"1_0", b"0x1", b"18446744073709551616")
    ),
    (b"cas a 0 0 5\r\nget b\r\n", [reject(BAD_FORMAT)]),
    (b"cas a 0 0 5 noreply\r\nget b\r\n", [reject(BAD_FORMAT, True)]),
]

# Without a length, the intended value is parsed as a command.
BAD_STORES = [
    *(
        (b"set a 0 0 %b\r\nget b\r\n" % size, [reject(BAD_FORMAT), ("get", [b"b"])])
        for size in (
            b"x", b"-1", b"+1", b"1_0", b"0x1", b"1.0", b"", b"2147483646", b"4294967296",
            b"1" * 5000,
        )
    ),
    *(
        (b"%b\r\nget b\r\n" % line, [reject(BAD_FORMAT), ("get", [b"b"])])
        for line in (
            b"set", b"set a", b"set a 0", b"set a 0 0", b"set a 0 0 noreply",
            b"add a 0 0", b"replace a", b"append a 0", b"prepend", b"cas a 0 0",
            # noreply is looked for only once the line has all its words
            b"set a 0 0 x noreply",
        )
    ),
]  # fmt: skip

# The value is longer or shorter than declared: parsing resumes after the declared length.
BAD_CHUNKS = [
    (b"set a 0 0 3\r\nxyzget b\r\n", [reject(BAD_CHUNK), admin(b"t", b"b")]),
    (b"set a 0 0 3\r\nxyz\n\nget b\r\n", [reject(BAD_CHUNK), ("get", [b"b"])]),
    (b"set a 0 0 3 noreply\r\nxyz\n\nget b\r\n", [reject(BAD_CHUNK, True), ("get", [b"b"])]),
    (b"cas a 0 0 3 1\r\nxyz..get b\r\n", [reject(BAD_CHUNK), ("get", [b"b"])]),
    (b"set a 0 0 1\r\nxyz\r\n", [reject(BAD_CHUNK), reject(BAD_FORMAT)]),
    (b"set a 0 0 1\r\nxy\r\n", [reject(BAD_CHUNK), reject(BAD_FORMAT)]),
    (b"set a 0 0 1\r\nxyzvw\r\n", [reject(BAD_CHUNK), admin(b"vw")]),
    (b"set a 0 0 0\r\nvalue\r\n", [reject(BAD_CHUNK), admin(b"lue")]),
    (b"set a 0 0 5\r\nx\r\nget key\r\n", [reject(BAD_CHUNK), admin(b"key")]),
]

TOO_LARGE = [
    *(
        (
            b"%b a 0 0 2000%b\r\n" % (name, b" 1" if name == b"cas" else b"")
            + b"get b\r\n" * 285 + b"12345" + b"\r\n",
            [("too_large", name, b"a", False)],
        )
        for name in (b"set", b"add", b"replace", b"append", b"prepend", b"cas")
    ),
    (b"set a 0 0 2000 noreply\r\n" + b"\n" * 2002, [("too_large", b"set", b"a", True)]),
    # Skipped by length: a wrong line ending after a refused value goes unnoticed.
    (b"set a 0 0 2000\r\n" + b"x" * 2002 + b"get b\r\n",
     [("too_large", b"set", b"a", False), ("get", [b"b"])]),
]  # fmt: skip

CHANGES = [
    (b"delete a\r\n", [("delete", b"a", False)]),
    (b"delete a noreply\r\n", [("delete", b"a", True)]),
    (b"delete a 0\r\n", [("delete", b"a", False)]),
    (b"delete a 0 noreply\r\n", [("delete", b"a", True)]),
    (b"delete  a  \n", [("delete", b"a", False)]),
    (b"delete noreply\r\n", [("delete", b"noreply", True)]),  # as memcached reads it
    (b"delete\r\n", [reject(BAD_FORMAT)]),
    (b"delete " + K250 + b"\r\n", [("delete", K250, False)]),
    (b"delete " + K251 + b"\r\n", [reject(BAD_FORMAT)]),
    (b"delete " + K251 + b" noreply\r\n", [reject(BAD_FORMAT, True)]),
    (b"incr a 1\r\n", [("incr", b"a", 1, False)]),
    (b"incr a 1 noreply\r\n", [("incr", b"a", 1, True)]),
    (b"incr  a   4097  \r\n", [("incr", b"a", 4097, False)]),
    (b"incr a 0\r\n", [("incr", b"a", 0, False)]),
    (b"incr a %d\r\n" % (2**64 - 1), [("incr", b"a", 2**64 - 1, False)]),
    (b"incr a %d\r\n" % 2**64, [reject(BAD_DELTA)]),
    (b"incr\r\n", [reject(BAD_FORMAT)]),
    (b"incr a\r\n", [reject(BAD_FORMAT)]),
    (b"incr a noreply\r\n", [reject(BAD_DELTA, True)]),
    *(
        (b"incr a %b\r\n" % delta, [reject(BAD_DELTA)])
        for delta in (b"x", b"-1", b"+1", b"1_0", b"0x1", b"1.0", b"\xb2", b"1" * 5000)
    ),
    (b"incr a -1 noreply\r\n", [reject(BAD_DELTA, True)]),
    (b"incr " + K251 + b" x\r\n", [reject(BAD_FORMAT)]),
    (b"decr a 1\r\n", [("decr", b"a", 1, False)]),
    (b"decr a 1 noreply\r\n", [("decr", b"a", 1, True)]),
    (b"decr a\r\n", [reject(BAD_FORMAT)]),
    (b"decr a x\r\n", [reject(BAD_DELTA)]),
    (b"touch a 10\r\n", [("touch", b"a", 10, False)]),
    (b"touch a 10 noreply\r\n", [("touch", b"a", 10, True)]),
    (b"touch a -5\r\n", [("touch", b"a", -5, False)]),
    (b"touch a\r\n", [reject(BAD_FORMAT)]),
    (b"touch a noreply\r\n", [reject(BAD_EXPTIME, True)]),
    *(
        (b"touch a %b\r\n" % exptime, [reject(BAD_EXPTIME)])
        for exptime in (b"x", b"+1", b"1_0", b"0x1", b"1" * 30)
    ),
    (b"touch " + K251 + b" 0 noreply\r\n", [reject(BAD_FORMAT, True)]),
]

OTHERS = [
    (b"version\r\n", [admin(b"version")]),
    (b"version noreply\r\n", [admin(b"version", b"noreply")]),
    (b"stats\r\n", [admin(b"stats")]),
    (b"stats  items \r\n", [admin(b"stats", b"items")]),
    (b"stats noreply\r\n", [admin(b"stats", b"noreply")]),
    (b"flush_all\r\n", [admin(b"flush_all")]),
    (b"flush_all 10 noreply\r\n", [admin(b"flush_all", b"10", b"noreply", noreply=True)]),
    (b"verbosity 1\n", [admin(b"verbosity", b"1")]),
    (b"nonsense\r\n", [admin(b"nonsense")]),
    (b"nonsense noreply\r\n", [admin(b"nonsense", b"noreply", noreply=True)]),
    (b"noreply\r\n", [admin(b"noreply", noreply=True)]),
    (b"GET a\r\n", [admin(b"GET", b"a")]),
    (b"get\ta\r\n", [admin(b"get\ta")]),
    (b"HTTP/1.1\r\n", [admin(b"HTTP/1.1")]),
    (b"POST / HTTP/1.0 more\r\n", [admin(b"POST", b"/", b"HTTP/1.0", b"more")]),
    (b"x" * 2048 + b"\n", [admin(b"x" * 2048)]),
    # After leading spaces memcached recognises only commands that are not about keys.
    (b"  flush_all\r\n", [admin(b"flush_all")]),
    (b" get a\r\n", [reject(ERROR)]),
    (b"  version\r\n", [reject(ERROR)]),
    (b" quit\r\n", [reject(ERROR)]),
    (b" set a 0 0 5\r\nget b\r\n", [reject(ERROR), ("get", [b"b"])]),
    # Lines too short for any command, and blank ones.
    (b"\r\n", [reject(BAD_FORMAT)]),
    (b"\n", [reject(BAD_FORMAT)]),
    (b"a\r\n", [reject(BAD_FORMAT)]),
    (b"ab\n", [reject(BAD_FORMAT)]),
    (b" \r\n", [reject(BAD_FORMAT)]),
    (b"\n\r\n\n", [reject(BAD_FORMAT)] * 3),
    (b"ab\r\n", [admin(b"ab")]),
    (b"abc\n", [admin(b"abc")]),
    (b"    \r\n", [reject(ERROR)]),
]

CASES = [
    *RETRIEVALS, *STORES, *BAD_STORES_SWALLOWED, *BAD_STORES, *BAD_CHUNKS, *TOO_LARGE, *CHANGES,
    *OTHERS,
]  # fmt: skip

AS_IN_MEMCACHED = [
    # memcached reads the exptime of gat before it looks at the keys.
    (b"gat x " + K251 + b"\r\n", [reject(BAD_EXPTIME)]),
    # Noreply also suppresses the ERROR for a command after leading spaces.
    (b" get a noreply\r\n", [reject(ERROR, True)]),
    (b" delete a noreply\r\n", [reject(ERROR, True)]),
]


def case_id(case):
    wire = case[0]
    text = repr(wire)[2:-1]
    return text if len(text) <= 60 else f"{text[:50]}…({len(wire)})"


every_case = pytest.mark.parametrize(
    ("wire", "calls"),
    [pytest.param(*case, id=case_id(case)) for case in [*CASES, *AS_IN_MEMCACHED]],
)


@every_case
def test_whole(wire, calls):
    peer = Peer()
    assert peer.send(wire) == calls
    assert not peer.parser.in_command


def limits_for(wire):
    """Return limits that let lines of that length arrive in pieces."""
    if max(map(len, wire.split(b"\n"))) > LIMITS.line_length:
        return replace(LIMITS, line_length=10_000)  # closing has tests of its own
    return LIMITS


@every_case
def test_byte_by_byte(wire, calls):
    peer = Peer(limits_for(wire))
    assert peer.send(*one_by_one(wire)) == calls
    assert not peer.parser.in_command


@every_case
def test_in_two_pieces(wire, calls):
    """Wherever it is cut, in particular shortly before the end of a value."""
    for at in {*range(1, min(len(wire), 300)), *range(max(1, len(wire) - 5), len(wire))}:
        peer = Peer(limits_for(wire))
        assert peer.send(wire[:at], wire[at:]) == calls, at
        assert not peer.parser.in_command, at


@every_case
def test_with_trailing_bytes(wire, calls):
    """A trailing command and the start of another change nothing; the first is carried out."""
    peer = Peer()
    assert peer.send(wire + b"gets next\r\nset n 0 0 1") == [*calls, ("gets", [b"next"])]
    assert peer.send(b"\r\nv\r\n")[-1] == ("set", b"n", 0, 0, b"v", False)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_all_cases_in_one_stream(size):
    """One connection receives all cases in sequence, however they are chunked."""
    cases = [case for case in CASES if max(map(len, case[0].split(b"\n"))) < 2000]
    stream = b"".join(wire for wire, _ in cases)
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert Peer().send(*chunks) == [call for _, calls in cases for call in calls]


# Numbers


@pytest.mark.parametrize(
    ("token", "number"),
    [
        (b"0", 0), (b"4096", 4096), (b"4097", 4097), (b"007", 7),
        (b"18446744073709551615", 2**64 - 1),
        (b"18446744073709551616", None), (b"0" * 30 + b"1", 1), (b"1" + b"0" * 30, None),
        (b"", None), (b"-1", None), (b"+1", None), (b"1_0", None), (b"0x1", None), (b" 1", None),
        (b"1 ", None), (b"1\n", None), (b"1.0", None), ("²".encode(), None), ("٣".encode(), None),
    ],
)  # fmt: skip
def test_unsigned(token, number):
    assert unsigned(token, 2**64) == number


@pytest.mark.parametrize(("end", "number"), [(10, None), (11, 10), (4096, 10)])
def test_unsigned_is_below_its_bound(end, number):
    assert unsigned(b"10", end) == number


@pytest.mark.parametrize(
    ("token", "number"),
    [
        (b"0", 0), (b"-0", 0), (b"-1", -1), (b"4097", 4097), (b"-2147483648", -(2**31)),
        (b"2147483647", 2**31 - 1), (b"", None), (b"-", None), (b"--1", None), (b"+1", None),
        (b"1-", None), (b"1_0", None), (b"0x1", None), (b" 1", None), (b"1\n", None),
        (b"9" * 21, None), ("٣".encode(), None),
        (b"9223372036854775807", 2**63 - 1), (b"9223372036854775808", None),
        (b"-9223372036854775808", -(2**63)), (b"-9223372036854775809", None),
    ],
)  # fmt: skip
def test_signed(token, number):
    assert signed(token) == number


# Too large


@pytest.mark.parametrize("cas", [True, False])
@pytest.mark.parametrize("flags", [0, 1])
@pytest.mark.parametrize("key", [b"k", K250])
def test_item_size_is_counted_to_the_byte(key, flags, cas):
    peer = Peer(replace(LIMITS, cas=cas))
    fits = LIMITS.item_size - item_total(len(key), flags, 0, cas=cas)
    for size, name in ((fits, "set"), (fits + 1, "too_large")):
        peer.send(b"set %b %d 0 %d\r\n" % (key, flags, size) + b"v" * size + b"\r\n")
        assert peer.calls[-1][0] == name
    assert len(peer.calls) == 2


def test_the_largest_length_is_refused_before_its_value_arrives():
    peer = Peer()
    assert peer.send(b"set a 0 0 2147483645\r\nget b\r\n") == [("too_large", b"set", b"a", False)]
    assert peer.parser.in_value


@pytest.mark.parametrize("end", [b"\r\n", b"\n\n", b"xy"])
@pytest.mark.parametrize("begun", [[0], [1], [1000, 1, 70_000], [100_000], [100_000, 1]])
def test_the_rest_of_a_large_value_may_be_read_into_place(begun, end):
    value = bytes(range(250)) * 400
    peer = Peer(replace(LIMITS, item_size=200_000))
    peer.send(b"get a\r\nset k 7 3 100000\r\n" + value[: begun[0]])
    position = begun[0]
    for size in begun[1:]:
        peer.send((value + end)[position : position + size])
        position += size
    missing = peer.parser.missing_of_large
    assert missing == max(len(value) - position, 0)
    if missing:
        peer.parser.reserve()[:] = value[position:]
        position = len(value)
        assert peer.parser.in_value
        assert not peer.parser.missing_of_large
    peer.send(b"", (value + end)[position:][:1], (value + end)[position:][1:] + b"get b\r\n")
    framed = b"VALUE k 7 100000\r\n" + value + b"\r\nEND\r\n"
    stored = ("set_framed", b"k", 3, framed, False)
    bad = reject(b"CLIENT_ERROR bad data chunk\r\n")
    assert peer.calls[1:] == [stored if end == b"\r\n" else bad, ("get", [b"b"])]


def test_only_large_sets_can_be_read_into_place():
    peer = Peer(replace(LIMITS, item_size=200_000))
    for command in (b"set k 0 0 60000", b"add k 0 0 100000", b"ms k 100000"):
        peer.send(command + b"\r\n")
        assert peer.parser.in_value
        assert not peer.parser.missing_of_large
        peer.send(b"v" * int(command.split()[-1]) + b"\r\n")
    assert len(peer.calls) == 3


# Lines without an end


@pytest.mark.parametrize("chunk", [1, 7, 100, 5000])
@pytest.mark.parametrize(
    "start",
    [b"", b"set a 0 0 1 ", b"gat 0 ", b"getx ", b"get\t", b"GET ", b" " * 101 + b"get ",
     b" " * 3000],
    ids=repr,
)  # fmt: skip
def test_an_endless_line_closes_the_connection(start, chunk):
    peer = Peer()
    line = start + b"x" * 5000
    taken = 0
    with pytest.raises(ProtocolViolation, match="without an end"):
        for at in range(0, len(line), chunk):
            peer.send(line[at : at + chunk])
            taken = at + chunk
    assert taken <= LIMITS.line_length  # no byte over the limit was accepted
    assert peer.calls == []


def test_a_line_may_be_as_long_as_the_limit():
    peer = Peer()
    peer.send(b"x" * LIMITS.line_length)
    with pytest.raises(ProtocolViolation):
        peer.send(b"x")


@pytest.mark.parametrize("chunk", [1, 999, 100_000])
@pytest.mark.parametrize("name", [b"get", b"gets"])
def test_get_lines_may_be_longer(name, chunk):
    keys = [b"key%d" % number for number in range(1000)]
    line = name + b" " + b" ".join(keys) + b"\r\n"
    peer = Peer()
    chunks = [line[at : at + chunk] for at in range(0, len(line), chunk)]
    assert peer.send(*chunks) == [(name.decode(), keys)]


def test_a_get_line_after_a_hundred_spaces_is_accepted():
    line = b" " * 100 + b"gets " + b"k " * 2000 + b"\r\n"
    assert Peer().send(*one_by_one(line)) == [reject(ERROR)]


@pytest.mark.parametrize("chunk", [1, 500])
def test_get_line_has_a_limit_too(chunk):
    limits = replace(LIMITS, line_length=100, get_line_length=1000)
    peer = Peer(limits)
    line = b"get " + b"k" * 996
    peer.send(*(line[at : at + chunk] for at in range(0, len(line), chunk)))
    with pytest.raises(ProtocolViolation):
        peer.send(b"k")


# Input that is not memcached's protocol


@pytest.mark.parametrize(
    "line", [b"GET / HTTP/1.1", b"POST /x HTTP/1.0", b"a HTTP/", b" GET / HTTP/1.1"]
)
@pytest.mark.parametrize("cut", [lambda line: [line], one_by_one], ids=["whole", "bytes"])
def test_an_http_request_closes_the_connection(line, cut):
    peer = Peer()
    with pytest.raises(ProtocolViolation, match="HTTP"):
        peer.send(*cut(line + b"\r\nHost: here\r\n\r\n"))
    assert peer.calls == []


def test_an_http_request_after_a_command_closes_the_connection():
    peer = Peer()
    with pytest.raises(ProtocolViolation, match="HTTP"):
        peer.send(b"get a\r\nGET / HTTP/1.1\r\n")
    assert peer.calls == [("get", [b"a"])]


@pytest.mark.parametrize(
    "start",
    [
        b"\x80\x00\x00\x01" + bytes(20),
        b"\x80",
        b"\x80 some text\r\n",
        b"\x80\n",  # too short for any command, but the connection is closed all the same
    ],
)
@pytest.mark.parametrize("cut", [lambda line: [line], one_by_one], ids=["whole", "bytes"])
def test_binary_magic_closes_the_connection(start, cut):
    peer = Peer()
    with pytest.raises(ProtocolViolation, match="binary"):
        peer.send(*cut(start))
    assert peer.calls == []


def test_an_http_request_that_looks_like_a_command_after_a_space():
    # memcached closes the connection after leading spaces, too.
    with pytest.raises(ProtocolViolation, match="HTTP"):
        Peer().send(b" get / HTTP/1.1\r\n")


# Values in pieces


class Counted(bytes):
    """Bytes that count how many of them are copied by slicing and concatenation."""

    copied = 0

    def __getitem__(self, index):
        part = super().__getitem__(index)
        if isinstance(part, int) or len(part) == len(self):  # CPython copies no whole slice
            return part
        Counted.copied += len(part)
        return Counted(part)

    def __add__(self, other):
        Counted.copied += len(self) + len(other)
        return Counted(super().__add__(other))

    def __radd__(self, other):
        if isinstance(other, bytearray):  # grows in place
            return NotImplemented
        Counted.copied += len(self) + len(other)
        return Counted(bytes(other) + bytes(self))


def joins_during(action):
    """Return how often `action` called a method named join."""
    joins = 0

    def profile(_frame, event, called):
        nonlocal joins
        joins += event == "c_call" and called.__name__ == "join"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
    return joins


@pytest.mark.parametrize(
    ("length", "chunk"), [(64 * 1024, 1), (1024 * 1024, 61), (1024 * 1024, 4093), (2**20, 2**16)]
)
def test_values_in_pieces_are_copied_a_bounded_number_of_times(length, chunk):
    peer = Peer(Limits(item_size=2 * 1024 * 1024))
    value = (EVERY_BYTE * (length // 256))[:length]
    peer.send(b"set a 0 0 %d\r\n" % length)
    stream = value + b"\r\nget a\r\n"
    chunks = [Counted(stream[at : at + chunk]) for at in range(0, len(stream), chunk)]
    Counted.copied = 0
    joins = joins_during(lambda: peer.send(*chunks))
    # A large value is joined with the reply lines around it.
    framed = b"VALUE a 0 %d\r\n%b\r\nEND\r\n" % (length, value)
    assert peer.calls == [("set_framed", b"a", 0, framed, False), ("get", [b"a"])]
    # Each chunk is joined once into a block of many, and the blocks once into the value.
    assert joins <= len(chunks) // 1000 + 1
    assert Counted.copied <= 3 * chunk + 100


def test_refused_values_in_pieces_are_not_kept():
    peer = Peer()
    peer.send(b"set a 0 0 699998\r\n")
    Counted.copied = 0
    chunks = [Counted(b"get b\r\n")] * 100_000
    assert joins_during(lambda: peer.send(*chunks)) == 0
    assert Counted.copied == 0
    assert peer.calls == [("too_large", b"set", b"a", False)]
    assert not peer.parser.in_value


def test_hit_is_called_first_for_any_line_that_may_be_a_get():
    peer = Peer()
    asked = []

    def hit(line):
        asked.append(line)
        return line in (b"get a\r\n", b"get b\r\r\n")

    peer.recorder.hit = hit
    peer.send(
        b"get a\r\nget b\r\r\nget a\nget c\r\nget  a\r\nget a \r\nget a a\r\nget \r\n"
        b"get\r\ngets a\r\ngat 0 a\r\n get a\r\nGet a\r\n"
        b"set x 0 0 5\r\nget a\r\nget " + K251 + b"\r\n"
    )
    assert asked == [
        b"get a\r\n", b"get b\r\r\n", b"get a\n", b"get c\r\n", b"get  a\r\n", b"get a \r\n",
        b"get a a\r\n", b"get \r\n", b"get\r\n", b"gets a\r\n", b"gat 0 a\r\n",
    ]  # fmt: skip
    assert peer.calls == [
        ("get", [b"a"]),
        ("get", [b"c"]),
        ("get", [b"a"]),
        ("get", [b"a"]),
        ("get", [b"a", b"a"]),
        reject(BAD_FORMAT),
        reject(BAD_FORMAT),
        ("gets", [b"a"]),
        ("gat", 0, [b"a"]),
        reject(ERROR),
        admin(b"Get", b"a"),
        ("set", b"x", 0, 0, b"get a", False),
        reject(BAD_FORMAT),
    ]


def test_hit_is_not_called_for_a_line_that_arrives_alone():
    """The connection has already tried such a line."""
    peer = Peer()
    peer.recorder.hit = lambda line: pytest.fail("asked")
    peer.send(b"get a\r\n", b"get b", b"\r\n")
    assert peer.calls == [("get", [b"a"]), ("get", [b"b"])]


def test_hits_count_towards_the_commands_per_turn():
    parser, recorder = TextParser(replace(LIMITS, commands_per_read=3)), Recorder()
    hits = []
    recorder.hit = lambda line: hits.append(line) or True
    assert parser.receive(b"get a\r\n" * 4, recorder) is True
    assert len(hits) == 3
    assert parser.receive(b"", recorder) is False
    assert (len(hits), recorder.calls) == (4, [])


# A connection calls receive(b"") once its peer has read replies, possibly between the two bytes of
# a value's line ending.
def test_continuing_within_a_values_line_ending_changes_nothing():
    peer = Peer()
    assert peer.send(b"set a 0 0 3\r\nabc\r", b"", b"\n") == [("set", b"a", 0, 0, b"abc", False)]


# Taking turns


SHARE = replace(LIMITS, commands_per_read=3)


def test_the_commands_per_turn_are_limited():
    parser, recorder = TextParser(SHARE), Recorder()
    stream = b"".join(b"get k%d\r\n" % number for number in range(8))
    expected = [("get", [b"k%d" % number]) for number in range(8)]
    assert parser.receive(stream, recorder) is True
    assert recorder.calls == expected[:3]
    assert parser.in_command
    assert parser.receive(b"", recorder) is True
    assert recorder.calls == expected[:6]
    assert parser.receive(b"", recorder) is False
    assert recorder.calls == expected
    assert not parser.in_command
    assert parser.receive(b"", recorder) is False


def test_a_full_turn_leaves_no_backlog():
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(b"get a\r\n" * 3, recorder) is False
    assert not parser.in_command


def test_an_incomplete_line_after_a_full_turn_is_not_a_backlog():
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(b"get a\r\n" * 3 + b"get b", recorder) is False
    assert parser.in_command
    assert parser.receive(b"\r\n", recorder) is False
    assert recorder.calls[3:] == [("get", [b"b"])]


@pytest.mark.parametrize(
    "command",
    [b"get a\r\n", b"set a 0 0 1\r\nx\r\n", b"delete a\r\n", b"get\r\n", b"\r\n",
     b"set a x 0 1\r\nv\r\n", b"set a 0 0 9999\r\n" + b"x" * 9999 + b"\r\n"],
    ids=lambda command: repr(command)[:20],
)  # fmt: skip
def test_every_kind_of_command_counts(command):
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(command * 4, recorder) is True
    assert len(recorder.calls) == 3
    assert parser.receive(b"", recorder) is False
    assert len(recorder.calls) == 4


def test_new_data_is_parsed_after_the_backlog():
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(b"get a\r\n" * 3 + b"get b\r\nset c 0 0 5\r\nhe", recorder) is True
    assert parser.receive(b"llo\r\nget d\r\nget e\r\nget", recorder) is True
    assert recorder.calls[3:] == [
        ("get", [b"b"]),
        ("set", b"c", 0, 0, b"hello", False),
        ("get", [b"d"]),
    ]
    assert parser.receive(b" f\r\n", recorder) is False
    assert recorder.calls[6:] == [("get", [b"e"]), ("get", [b"f"])]


def test_values_arriving_after_a_full_turn_are_completed():
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(b"get a\r\n" * 2 + b"set c 0 0 5\r\nhe", recorder) is False
    assert parser.receive(b"llo\r\n" + b"get d\r\n" * 4, recorder) is True
    assert parser.receive(b"", recorder) is False
    assert [call[0] for call in recorder.calls] == ["get", "get", "set"] + ["get"] * 4


# Quitting


@pytest.mark.parametrize("line", [b"quit\r\n", b"quit\n", b"quit now\r\n", b"quit noreply\r\n"])
@pytest.mark.parametrize("trailing", [b"", b"get a\r\n", b"set a 0 0 100\r\nx", b"\x80", b"get"])
def test_quit_drops_what_follows(line, trailing):
    peer = Peer()
    assert peer.send(b"get a\r\n" + line + trailing) == [("get", [b"a"]), ("quit",)]
    assert not peer.parser.in_command


def test_quit_byte_by_byte():
    assert Peer().send(*one_by_one(b"quit\r\n")) == [("quit",)]


def test_quit_drops_the_backlog_too():
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(b"get a\r\n" * 3 + b"quit\r\n" + b"get b\r\n" * 9, recorder) is True
    assert parser.receive(b"", recorder) is False
    assert recorder.calls[3:] == [("quit",)]


# in_command and in_value


@pytest.mark.parametrize(
    ("sent", "in_command", "in_value"),
    [
        (b"", False, False),
        (b"get", True, False),
        (b"get a\r", True, False),
        (b"get a\r\n", False, False),
        (b"set a 0 0 3\r", True, False),
        (b"set a 0 0 3\r\n", True, True),
        (b"set a 0 0 3\r\nxyz", True, True),
        (b"set a 0 0 3\r\nxyz\r", True, True),
        (b"set a 0 0 3\r\nxyz\r\n", False, False),
        (b"set a 0 0 0\r\n", True, True),
        (b"set a 0 0 3\r\nxyzzy", False, False),
        (b"set a x 0 3\r\nxyz", True, True),
        (b"set a x 0 3\r\nxyz\r\n", False, False),
        (b"set a 0 0 9999\r\nxyz", True, True),
        (b"set a 0 0 x\r\n", False, False),
        (b"get a\r\nget", True, False),
    ],
)
@pytest.mark.parametrize("cut", [lambda stream: [stream], one_by_one], ids=["whole", "bytes"])
def test_in_command_and_in_value(sent, in_command, in_value, cut):
    peer = Peer()
    peer.send(*cut(sent))
    assert (peer.parser.in_command, peer.parser.in_value) == (in_command, in_value)


@pytest.mark.parametrize("command", [b"stats items\r\n", b"nonsense\r\n", b"flush_all\r\n"])
def test_an_administrative_command_ends_the_turn(command):
    parser, recorder = TextParser(SHARE), Recorder()
    assert parser.receive(command * 2 + b"get a\r\n", recorder) is True
    assert len(recorder.calls) == 1
    assert parser.receive(b"", recorder) is True
    assert len(recorder.calls) == 2
    assert parser.receive(b"", recorder) is False
    assert recorder.calls[2:] == [("get", [b"a"])]


def test_leading_zeros_do_not_make_a_number_long():
    peer = Peer()
    zeros = b"0" * 5000
    request = b"set a %b7 %b0 %b1\r\nx\r\nincr a %b5\r\n" % (zeros, zeros, zeros, zeros)
    assert [call[0] for call in peer.send(request)] == ["set", "incr"]


@pytest.mark.parametrize("noreply", [False, True])
@pytest.mark.parametrize("end", [b"\r\n", b"\n\r", b"xx"])
def test_a_large_set_is_framed_if_its_line_ending_is_right(noreply, end):
    peer = Peer(Limits(item_size=2 * 1024 * 1024))
    length = 100_000
    line = b"set a 7 60 %d%b\r\n" % (length, b" noreply" if noreply else b"")
    peer.send(line[:10], line[10:] + b"x" * 50_000, b"x" * 50_000 + end[:1], end[1:] + b"get b\r\n")
    if end == b"\r\n":
        framed = b"VALUE a 7 100000\r\n" + b"x" * length + b"\r\nEND\r\n"
        assert peer.calls == [("set_framed", b"a", 60, framed, noreply), ("get", [b"b"])]
    else:
        assert peer.calls[0] == ("reject", replies.BAD_DATA_CHUNK, noreply)
