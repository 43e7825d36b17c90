"""Random conversations with two servers, which must give the same replies.

A conversation is a list of batches. A batch is sent on a text or a binary connection, cut into
packets at random, and its replies are read before the next one. Cas uniques are those from earlier
replies of the same server. The last batch may also hold malformed requests; then the input ends.

Known differences are either not generated or normalised; `DIFFERENCES` lists both kinds.
"""

import contextlib
import dataclasses
import random
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from memlite.protocol.packets import Opcode
from tests.support.packets import HEADER, NOOP, count, packet, store, touch
from tests.support.servers import RunningServer, Wire

DIFFERENCES = {
    "cas uniques": "| cas uniques |",
    "cas after touch": "| gat, touch, and `mg` with `T` | keep the cas unique |",
    "past expiry": "| `t` in `mg` and `ma` that give an expiry in the past |",
    "long key": "with a key over 250 bytes | the error line and an empty line",
    "shorter number": "that shorten a number to which memcached still refers",
    "longer number": "| `ma`, `incr` when the number gets longer |",
    "ma T": "| `ma` with `T`, when the number gets longer |",
    "base64": "| `md` with `x`, `mg` with `N`, append to a key in base64 |",
    "white space only": "on a value of white space only",
    "large flags": "| flags of 2**32 and above |",
    "large exptime": "| exptime of more than 32 bits in a storage command |",
    "odd number": "with white space other than a space, or a zero byte, beside the number",
    "long number": "| numbers of more than 20 digits, leading zeros |",
    "binary opcodes": "| Verbosity (0x1b) |",
    "surplus": "| Stat, Touch, GAT with a longer body than extras and key |",
    "binary magic": "| a first byte other than 0x80 |",
    "unfinished": "| replies to commands in front of an unfinished one |",
    "reads": "| `h` and `l` in `mg`, on a bucket |",
    "abbreviations": "| abbreviated words after `stats`",
}
"""The differences that are not compared, with the text that names each on the protocol page."""

ITEMS = [b"a", b"b", b"c:1"]  # may become stale, and empty
NUMBERS = [b"n", b"m"]  # never, because of the "longer number"
BASE64 = [b"YiBi", b"Y2MK"]
PEER_OPTIONS = ("-t", "1", "-o", "no_lru_maintainer")
"""Options with which memcached refers to an item only while it replies: "shorter number"."""
OTHERS = (
    b"flush_all\r\n", b"flush_all -\r\n", b"flush_all noreply\r\n", b"mn\r\n", b"\x80abc\r\n",
    b"verbosity 0\r\n", b"verbosity\r\n", b"\r\n", b"nonsense\r\n", b" get a\r\n", b"a\r\n",
    b"get\r\n", b"set a\r\n", b"stats nonsense\r\n", b"cache_memlimit 1\r\n", b"touch a\r\n",
    b"incr n x\r\n", b"incr n -1\r\n", b"gat x a\r\n", b"ms a\r\n", b"set a 0 0 -1\r\n",
    b"set a x 0 1\r\n1\r\n", b"cas a 0 0 1 x\r\n1\r\n", b"set a 0 0 3\r\nabcde\r\n",
    b"ms a 3\r\nabcde\r\n", b"add a 0 0 1\r\nxyz\r\n",
    b"set a 0 0 1048577\r\n" + b"z" * 1048577 + b"\r\n",
    b"ms %b 1\r\n1\r\n" % (b"k" * 251), b"ma " + b"k" * 251 + b"\r\n",
)  # fmt: skip
"""Requests without a key, and malformed but complete requests."""
SURPLUS_LOST = (
    Opcode.STAT, Opcode.TOUCH, Opcode.GAT, Opcode.GATQ, Opcode.GATK, Opcode.GATKQ,
)  # fmt: skip
"""The opcodes of "surplus"."""
PLACE = b"<cas>"
CONVERSATIONS_TRIED = 3
# Seconds by which the clock has probably ticked at every attempt, on a busy machine.
_SLOW = 0.5
_TIME = re.compile(rb" ([tl])(\d+)")
LONGEST = 2000
"""The size limit of malformed requests, in bytes: too small for a line without an end."""


@dataclass(frozen=True)
class Unit:
    """A complete request, possibly malformed.

    Attributes:
        data: its bytes; in text, `PLACE` stands for a cas unique.
        age: how many cas uniques were seen since the one it uses; -1 if it uses none.
        alone: whether it must be the only unit of its batch.
    """

    data: bytes
    age: int = -1
    alone: bool = False

    def render(self, uniques: Sequence[int]) -> bytes:
        """Return the bytes to send to a server that has shown these cas uniques."""
        if self.age < 0:
            return self.data
        unique = uniques[-1 - self.age] if self.age < len(uniques) else 2**63
        if self.data[0] == NOOP[0]:
            return self.data[:16] + unique.to_bytes(8) + self.data[24:]
        return self.data.replace(PLACE, b"%d" % unique)


@dataclass(frozen=True)
class Batch:
    """Units that are sent together.

    Attributes:
        binary: the connection they are sent on.
        units: the units.
        cuts: where packets end, as shares of the whole.
        last: whether the input ends with it.
    """

    binary: bool
    units: tuple[Unit, ...]
    cuts: tuple[float, ...] = ()
    last: bool = False


Conversation = list[Batch]


@dataclass
class Generator:
    """Generates conversations.

    Attributes:
        rng: the source of random choices.
        versioned: whether a new expiry gives an item a new cas unique, as on a file.
    """

    rng: random.Random
    versioned: bool = False
    _touches: bool = field(default=True, init=False)
    _conditions: bool = field(default=True, init=False)

    def conversation(self) -> Conversation:
        """Return a random conversation."""
        rng = self.rng
        if self.versioned:  # "cas after touch"
            self._touches = rng.random() < 0.5
            self._conditions = not self._touches
        batches: Conversation = []
        for _ in range(rng.randint(1, 8)):
            binary = rng.random() < 0.3
            units = [self._unit(binary) for _ in range(rng.choice((1, 1, 2, 3, 8, 20)))]
            together: list[Unit] = []
            for unit in units:
                if unit.alone:
                    batches += self._batches(binary, together)
                    batches += self._batches(binary, [unit])
                    together = []
                else:
                    together.append(unit)
            batches += self._batches(binary, together)
        binary = rng.random() < 0.3
        units = [self._unit(binary) for _ in range(rng.randint(0, 3))]
        units = [unit for unit in units if not unit.alone]
        units += [self._malformed(binary) for _ in range(rng.randint(0, 3))]
        return [*batches, Batch(binary, tuple(units), self._cuts(), last=True)]

    def _batches(self, binary: bool, units: list[Unit]) -> Conversation:
        return [Batch(binary, tuple(units), self._cuts())] if units else []

    def _cuts(self) -> tuple[float, ...]:
        count = self.rng.choice((0, 0, 1, 2, 5))
        return tuple(sorted(self.rng.random() for _ in range(count)))

    def _age(self) -> int:
        return self.rng.choice((0, 0, 0, 1, 2, 5)) if self._conditions else -1

    def _unit(self, binary: bool) -> Unit:
        if binary:
            return self._packet()
        return self.rng.choice((self._text, self._text, self._meta))()

    # Values

    def _value(self) -> bytes:
        rng = self.rng
        fixed = (b"", b"0", b"7", b"99", b"\r\n", b"END\r\n", b"get a\r\n", b"mn\r\n", b"7x", NOOP)
        return rng.choice((*fixed, b"x" * rng.randint(1, 60), b"y" * rng.randint(900, 1500)))

    def _number(self) -> int:
        return self.rng.choice((0, 1, 9, 10, 99, 2**32, 2**63, 2**64 - 1))

    def _key(self) -> bytes:
        return self.rng.choice(ITEMS + NUMBERS + [b"e" * 250])

    def _exptime(self) -> bytes:
        return self.rng.choice((b"0", b"0", b"0", b"100", b"-1", b"2592000", b"400000000", b"-0"))

    def _flags(self) -> bytes:
        return self.rng.choice((b"0", b"0", b"1", b"65535", b"4294967295", b"007", b"+5", b"-0"))

    # Text

    def _text(self) -> Unit:
        return self.rng.choice(
            (self._store, self._store, self._retrieve, self._retrieve, self._change, self._other)
        )()

    def _end(self) -> bytes:
        return self.rng.choice((b"", b"", b"", b" noreply")) + self._line_end()

    def _line_end(self) -> bytes:
        return self.rng.choice((b"\r\n", b"\r\n", b"\r\n", b"\n"))

    def _store(self) -> Unit:
        rng = self.rng
        name = rng.choice(
            (b"set", b"set", b"set", b"add", b"replace", b"append", b"prepend", b"cas")
        )
        key = rng.choice(ITEMS + NUMBERS)
        value = self._value()
        if key in NUMBERS:
            value = b"%d" % self._number()
        unique, age = b"", -1
        if name == b"cas":
            age = self._age()
            unique = b" 0" if age < 0 else b" " + PLACE
        head = b"%b %b %b %b %d%b" % (
            name, key, self._flags(), self._exptime(), len(value), unique
        )  # fmt: skip
        return Unit(head + self._end() + value + b"\r\n", age)

    def _retrieve(self) -> Unit:
        rng = self.rng
        names = [b"get", b"get", b"gets", b"gets"]
        if self._touches:
            names += [b"gat 0", b"gats 100", b"gat -1", b"gat -"]
        if rng.random() < 0.02:
            return Unit(rng.choice(names) + b" " + b"k" * 251 + b"\r\n", alone=True)
        keys = [self._key() for _ in range(rng.randint(1, 5))]
        return Unit(b" ".join([rng.choice(names), *keys]) + self._line_end())

    def _change(self) -> Unit:
        rng = self.rng
        kind = rng.randrange(4)
        if kind == 0:
            return Unit(b"delete " + self._key() + rng.choice((b"", b" 0")) + self._end())
        if kind == 1 and self._touches:
            return Unit(b"touch %b %b" % (self._key(), self._exptime()) + self._end())
        name = rng.choice((b"incr", b"decr"))
        key = rng.choice(NUMBERS)
        return Unit(b"%b %b %d" % (name, key, self._number()) + self._end(), alone=True)

    def _other(self) -> Unit:
        return Unit(self.rng.choice(OTHERS))

    # Meta

    def _meta(self) -> Unit:
        rng = self.rng
        name = rng.choice((b"mg", b"mg", b"ms", b"ms", b"md", b"ma"))
        binary = name != b"ma" and rng.random() < 0.2
        key = rng.choice(BASE64 if binary else NUMBERS if name == b"ma" else ITEMS)
        age = -1
        letters = ["O123", "k", "q", "c"] if name != b"md" else ["O123", "k", "q"]
        times = ["T0", "T100", "T-1", "T2592000", "T-"]
        if name == b"mg":
            letters += ["v", "v", "f", "s", "t", "h", "u"]
            letters += [*times, "R30", "R200"] if self._touches else []
            letters += [] if binary else ["N0", "N100", "E7777"]
        elif name == b"ms":
            letters += [*times, "F5", "F65535", "I", "s", "MS", "ME", "MR", "E0"]
            letters += [] if binary else ["MA", "MP", "N100", "Ma"]
        elif name == b"md":
            letters += ["I", *(times if self._touches else [])]
            letters += [] if binary else ["x"]
        else:
            letters += [
                "J10",
                "D3",
                "D18446744073709551615",
                "MI",
                "MD",
                "M+",
                "M-",
                "v",
                "t",
                "N0",
            ]
        if rng.random() < 0.3:
            age = self._age()
            letters += [] if age < 0 else ["C" + PLACE.decode()] * 9
        words: dict[str, str] = {}
        for word in rng.sample(letters, min(len(letters), rng.randint(0, 7))):
            words.setdefault(word[0], word)
        if "C" in words:
            words.pop("I", None)  # "cas uniques": that of another item may be older here, not there
        if rng.random() < 0.03:
            words["?"] = rng.choice(("z", "k", "Tx", "?", "F", "T", "b"))
        line = b" ".join([name, key, *(word.encode() for word in words.values())])
        value = b""
        if name == b"ms":
            data = self._value()
            line = line.replace(key, b"%b %d" % (key, len(data)), 1)
            value = data + b"\r\n"
        line += b" b" if binary else b""
        return Unit(line + b"\r\n" + value, age, alone=name == b"ma")

    # Binary

    def _packet(self) -> Unit:
        rng = self.rng
        kind = rng.randrange(7)
        age = self._age() if rng.random() < 0.3 else -1
        if kind == 0:
            name = rng.choice((Opcode.INCREMENT, Opcode.INCREMENTQ, Opcode.DECREMENT))
            exptime = rng.choice((0, 100, 2**32 - 1))
            key = rng.choice(NUMBERS)
            return Unit(count(name, key, self._number(), self._number(), exptime), age, alone=True)
        if kind == 1 and self._touches:
            name = rng.choice((Opcode.TOUCH, Opcode.GAT, Opcode.GATQ, Opcode.GATK, Opcode.GATKQ))
            return Unit(touch(name, self._key(), rng.choice((0, 100, 2592000))))
        if kind == 2:
            name = rng.choice((Opcode.APPEND, Opcode.PREPEND, Opcode.APPENDQ))
            return Unit(packet(name, rng.choice(ITEMS), value=self._value()), age)
        if kind == 3:
            return Unit(packet(rng.choice((Opcode.DELETE, Opcode.DELETEQ)), self._key()), age)
        if kind == 4:
            other = (
                NOOP, packet(Opcode.FLUSH), packet(Opcode.FLUSHQ), packet(Opcode.STAT, b"nonsense"),
                packet(Opcode.SASL_LIST_MECHS), store(Opcode.SET, b"a", b"z" * 1048577),
            )  # fmt: skip
            return Unit(rng.choice(other))
        if kind == 5:
            names = (Opcode.SET, Opcode.SETQ, Opcode.ADD, Opcode.ADDQ, Opcode.REPLACE)
            flags, exptime = rng.choice((0, 5, 2**32 - 1)), rng.choice((0, 0, 100, 2592000))
            stored = store(rng.choice(names), rng.choice(ITEMS), self._value(), flags, exptime)
            return Unit(stored, age)
        names = (Opcode.GET, Opcode.GETQ, Opcode.GETK, Opcode.GETKQ)
        return Unit(packet(rng.choice(names), self._key(), opaque=rng.randrange(2**32)))

    # Malformed requests

    def _malformed(self, binary: bool) -> Unit:
        while True:
            unit = self._unit(binary)
            data = self._changed_packet(unit.data) if binary else self._changed_line(unit.data)
            fits = len(data) < LONGEST and unit.age < 0 and not unit.alone
            if fits and (data[1] not in SURPLUS_LOST if binary else _comparable(data)):
                return Unit(data)

    def _changed_packet(self, data: bytes) -> bytes:
        """Change the length of the key, of the extras or of the body."""
        rng = self.rng
        changed = bytearray(data)
        kind = rng.randrange(3)
        if kind == 0:
            changed[2:4] = rng.choice((0, 1, 250, 251)).to_bytes(2)
        elif kind == 1:
            changed[4] = rng.choice((0, 4, 8, 20))
        else:
            body = rng.choice((0, 1, 8, 100))
            changed[8:12] = body.to_bytes(4)
            changed = changed[: HEADER.size + body].ljust(HEADER.size + body, b"x")
        return bytes(changed)

    def _changed_line(self, data: bytes) -> bytes:
        """Change some words of the first line, or some bytes after it."""
        rng = self.rng
        line, end, rest = data.partition(b"\n")
        words = line.rstrip(b"\r").split(b" ")
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(words))
            odd = (
                b"",
                b"-",
                b"-0",
                b"x",
                b"noreply",
                b"1",
                b"-1",
                b"+1",
                b"k" * 251,
                b"a",
                b"\x80",
            )
            kind = rng.randrange(4)
            if kind == 0:
                words[at] = rng.choice(odd)
            elif kind == 1:
                words.insert(at, rng.choice(odd))
            elif kind == 2 and len(words) > 1:
                del words[at]
            else:
                rest = rest[: rng.randrange(len(rest) + 1)] + b"\n"
        return b" ".join(words) + rng.choice((b"\r", b"")) + end + rest


def _comparable(data: bytes) -> bool:
    """Return whether a malformed line is not one of `DIFFERENCES`."""
    words = data.partition(b"\n")[0].rstrip(b"\r").split()
    if not words:
        return True
    if words[0] in (b"get", b"gets", b"gat", b"gats"):
        return max(map(len, words)) <= 250  # "long key"
    sizes = words[2:3] if words[0] == b"ms" else words[4:5]
    if any(size.isdigit() and int(size) >= LONGEST // 2 for size in sizes):
        return False  # "unfinished"
    # "shorter number", "abbreviations", and a delayed flush, which a later flush may revoke
    return words[0] not in (b"incr", b"decr", b"ma", b"stats", b"flush_all")


# Talking to a server


class _Talk:
    """A conversation with one server."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._uniques: list[int] = []
        self._names: dict[int, bytes] = {0: b"0"}

    def replies(self, conversation: Conversation, *, hide: bool) -> Iterator[bytes]:
        """Yield the normalised replies to each batch; `hide` replaces all cas uniques alike."""
        with contextlib.ExitStack() as stack:
            wires: dict[bool, Wire] = {}
            for batch in conversation:
                wire = wires.get(batch.binary)
                if wire is None:
                    wire = wires[batch.binary] = stack.enter_context(
                        self._server.connect(_PATIENCE)
                    )
                    wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    if not batch.binary:  # the first byte selects the protocol
                        wire.ask(b"mn\r\n")
                reply = self._converse(wire, batch)
                yield self._normal(reply, batch.binary, hide=hide)

    def _converse(self, wire: Wire, batch: Batch) -> bytes:
        data = b"".join(unit.render(self._uniques) for unit in batch.units)
        mark, marked = _MARKS[batch.binary]
        end = _FILLING[batch.binary] if batch.last else mark
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            _send_in_pieces(wire.sock, data + end, batch.cuts)
        if not batch.last:
            try:
                return wire.until(marked)
            except (OSError, AssertionError) as error:
                return _NO_REPLY + type(error).__name__.encode()
        with contextlib.suppress(OSError):  # the server may have closed the connection
            wire.sock.shutdown(socket.SHUT_WR)
        return wire.rest()

    def _normal(self, reply: bytes, binary: bool, *, hide: bool) -> bytes:
        def name(unique: int) -> bytes:
            if unique and unique not in self._names:
                self._names[unique] = b"#%d" % len(self._names)
            if unique:
                self._uniques.append(unique)
            return b"#" if hide and unique else self._names[unique]

        if binary:
            return _normal_packets(reply, name)
        # "long key", "past expiry"
        reply = reply.replace(b"line format\r\n\r\n", b"line format\r\n")
        reply = re.sub(rb" t42949\d{5}(?=[ \r])", b" t0", reply)
        pattern = rb"(VALUE [^ ]+ \d+ \d+ |(?:HD|VA \d+|NS|EX|NF)[^\r\n]* c)(\d+)"
        return re.sub(pattern, lambda found: found[1] + name(int(found[2])), reply)


_NO_REPLY = b"no further reply: "
_PATIENCE = 30  # seconds
# The request that ends a batch and its reply, in text and in binary.
_MARKS = {
    False: (b"mg <end> O4711\r\n", b"EN O4711\r\n"),
    True: (
        packet(Opcode.NOOP, opaque=0x4711),
        HEADER.pack(0x81, Opcode.NOOP, 0, 0, 0, 0, 0, 0x4711, 0),
    ),
}
# Completes the data that a malformed request leaves incomplete: "unfinished".
_FILLING = {False: b"mn\r\n" * (LONGEST // 4), True: NOOP * (LONGEST // len(NOOP))}


def _send_in_pieces(sock: socket.socket, data: bytes, cuts: tuple[float, ...]) -> None:
    edges = [0, *(int(cut * len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        if start:
            select.select([sock], [], [], 0.001)  # so that most pieces arrive as separate packets
        sock.sendall(data[start:end])


def _normal_packets(reply: bytes, name: Callable[[int], bytes]) -> bytes:
    parts = []
    while len(reply) >= HEADER.size:
        body = struct.unpack_from(">I", reply, 8)[0]
        unique = int.from_bytes(reply[16:24])
        parts += [reply[:16], name(unique), reply[24 : 24 + body], b"\n"]
        reply = reply[24 + body :]
    return b"".join([*parts, reply])


# Comparing


@dataclass(frozen=True)
class Difference:
    """A batch that two servers answer differently.

    Attributes:
        conversation: the conversation, which ends with the batch.
        replies: the normalised replies of the two servers.
    """

    conversation: Conversation
    replies: tuple[bytes, bytes]

    def __str__(self) -> str:
        lines = []
        for batch in self.conversation:
            lines.append(f"{'binary' if batch.binary else 'text'}, cut at {batch.cuts}:")
            lines += [f"    {_short(unit.data)} {unit.age}" for unit in batch.units]
        lines += [f"  first:  {_short(self.replies[0])}", f"  second: {_short(self.replies[1])}"]
        pairs = enumerate(zip(*self.replies, strict=False))
        same = next((at for at, (one, other) in pairs if one != other), min(map(len, self.replies)))
        at = slice(max(0, same - 100), same + 200)
        lines.append(f"  from byte {same} on: {self.replies[0][at]!r} and {self.replies[1][at]!r}")
        return "\n".join(lines)


def _short(data: bytes) -> str:
    text = repr(data)
    return text if len(text) < 1000 else f"{text[:500]} … {text[-300:]}"


@dataclass
class Comparison:
    """Compares two servers, after flushing them.

    Attributes:
        servers: the servers.
        versioned: see `Generator`.
        forgets_reads: whether `h` is not compared, as on a bucket.
    """

    servers: tuple[RunningServer, RunningServer]
    versioned: bool = False
    forgets_reads: bool = False

    def difference(self, conversation: Conversation) -> Difference | None:
        """Return how the replies differ; None if they do not.

        A difference must persist: one caused by a clock tick between the two servers' replies
        does not count.
        """
        found = None
        for _ in range(CONVERSATIONS_TRIED):
            found = self._difference(conversation)
            if found is None:
                break
        return found

    def _difference(self, conversation: Conversation) -> Difference | None:
        begun = time.monotonic()
        for server in self.servers:
            server.ask(b"flush_all\r\ncache_memlimit 64\r\n")
        talks = [
            _Talk(server).replies(conversation, hide=self.versioned) for server in self.servers
        ]
        with contextlib.closing(talks[0]), contextlib.closing(talks[1]):
            for at, replies in enumerate(zip(*talks, strict=True)):
                if self.forgets_reads:
                    replies = tuple(re.sub(rb" h[01]", b" h#", reply) for reply in replies)
                same = replies[0] == replies[1] or (
                    time.monotonic() - begun > _SLOW and _same_but_for_a_tick(*replies)
                )
                if not same or replies[0].startswith(_NO_REPLY):
                    return Difference(conversation[: at + 1], replies)
        return None

    def shrink(self, found: Difference) -> Difference:
        """Return an equivalent difference with as few batches, units and packets as possible."""
        smaller: Difference | None = found
        while smaller is not None:
            found = smaller
            smaller = next(filter(None, map(self.difference, _smaller(found.conversation))), None)
        return found


def _same_but_for_a_tick(first: bytes, second: bytes) -> bool:
    """Return whether the replies are the same except for times that differ by a second."""
    hidden = [_TIME.sub(rb" \1#", reply) for reply in (first, second)]
    times = [[int(found[2]) for found in _TIME.finditer(reply)] for reply in (first, second)]
    return hidden[0] == hidden[1] and all(
        abs(one - other) <= 1 for one, other in zip(*times, strict=True)
    )


def _smaller(conversation: Conversation) -> Iterator[Conversation]:
    """Yield conversations with one part removed."""
    for at, batch in enumerate(conversation):
        before, after = conversation[:at], conversation[at + 1 :]
        if before or after:
            yield before + after
        for index in range(len(batch.units)) if len(batch.units) > 1 else ():
            units = batch.units[:index] + batch.units[index + 1 :]
            yield [*before, dataclasses.replace(batch, units=units), *after]
        if batch.cuts:
            yield [*before, dataclasses.replace(batch, cuts=()), *after]
