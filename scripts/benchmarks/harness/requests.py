"""The requests whose cost the scenario `commands` measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack
from typing import Any, Final

__all__ = ["Batch", "Command", "Sizes", "batch", "commands", "key_of", "store_of"]

_KEY: Final = b"<key>"  # stands for the key
_UNIQUE: Final = b"<cas unique>"  # stands for the cas unique of the key's item
_SMALLEST_KEY: Final = 10
_LONGEST_KEY: Final = 250
_NUMBER: Final = b"1000000000"
_STORED: Final = b"STORED\r\n"
_HEADER: Final = 24  # bytes of a binary packet
_SPREAD: Final = 37  # spreads hits among misses; coprime to 100


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of keys and values.

    Attributes:
        key: bytes of a key, 10 to 250.
        value: bytes of a value.
    """

    key: int = 20
    value: int = 100

    def fault(self) -> str:
        """Return the problem with the sizes; empty if there is none."""
        if not _SMALLEST_KEY <= self.key <= _LONGEST_KEY:
            return f"--key-size must be from {_SMALLEST_KEY} to {_LONGEST_KEY}"
        return "" if self.value > 0 else "--value-size must be positive"


@dataclass(frozen=True, slots=True)
class Command:
    """A command to measure; ``<key>`` stands for a key, ``<cas unique>`` for that of its item.

    Attributes:
        request: the request.
        reply: the reply for a stored key; only its length counts. With a ``<cas unique>``, whose
            length varies, only the end counts.
        before: a set to send first; empty for none.
        again: whether the set is necessary before each request.
        hits: how many of 100 keys were stored.
        miss: the reply for the other keys.
        keys: keys per request, separated by spaces; each counts as one operation.
        end: the end of the replies to a request, after those for all keys.
        last: a final request in each write.
        last_reply: the reply to it.
    """

    request: bytes
    reply: bytes
    before: bytes = b""
    again: bool = False
    hits: int = 100
    miss: bytes = b""
    keys: int = 1
    end: bytes = b""
    last: bytes = b""
    last_reply: bytes = b""

    @property
    def binary(self) -> bool:
        """Whether it is a command of the binary protocol."""
        return self.request[0] == 0x80

    @property
    def unique(self) -> bool:
        """Whether a request contains the cas unique of an item."""
        return _UNIQUE in self.request


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that are sent in one write.

    Attributes:
        data: the requests.
        size: bytes of the replies.
        operations: the number of keys requested.
        end: if not empty, the size is unknown, and each reply ends with this.
    """

    data: bytes
    size: int
    operations: int
    end: bytes = b""


def _is_hit(command: Command, index: int) -> bool:
    return index * _SPREAD % 100 < command.hits


def key_of(command: Command, sizes: Sizes, number: int, index: int) -> bytes:
    """Return a key of a command; see `batch` for `number`."""
    hit = _is_hit(command, index)
    return b"%c%02d%0*d" % (b"ka"[not hit], number, sizes.key - 3, index)


def batch(
    command: Command,
    sizes: Sizes,
    number: int,
    first: int,
    requests: int,
    uniques: Sequence[bytes] = (),
) -> Batch:
    """Return some requests.

    Args:
        command: the command.
        sizes: the sizes of keys and values.
        number: a number below 100 that distinguishes the command's keys from those of others.
        first: the number of the first key.
        requests: the number of requests.
        uniques: the cas uniques of all keys, for a command that sends them.
    """
    found = len(command.reply.replace(_KEY, bytes(sizes.key)))
    parts, size = [], requests * len(command.end) + len(command.last_reply)
    for request in range(requests):
        begin = first + request * command.keys
        indexes = range(begin, begin + command.keys)
        for index in indexes:
            size += found if _is_hit(command, index) else len(command.miss)
        names = [key_of(command, sizes, number, index) for index in indexes]
        line = command.request.replace(_KEY, b" ".join(names))
        parts.append(line.replace(_UNIQUE, uniques[begin]) if uniques else line)
    _, unknown, end = command.reply.partition(_UNIQUE)
    if not unknown:
        end = b""
    return Batch(b"".join(parts) + command.last, size, requests * command.keys, end)


def store_of(command: Command) -> Command:
    """Return the set that is sent before a command."""
    return Command(command.before, bytes(_HEADER) if command.binary else _STORED)


def commands(sizes: Sizes) -> dict[str, Command]:
    """Return the commands by their names in the table."""
    return {**_text(sizes), **_meta(sizes), **_binary(sizes)}


def _text(sizes: Sizes) -> dict[str, Command]:
    value = b"v" * sizes.value
    stored = b" <key> 0 0 %d\r\n%b\r\n" % (sizes.value, value)
    a_set = b"set" + stored
    number = b"set <key> 0 0 10\r\n%b\r\n" % _NUMBER
    item = b"VALUE <key> 0 %d\r\n%b\r\n" % (sizes.value, value)
    end = b"END\r\n"
    get = b"get <key>\r\n"
    found = {
        "get, hit": Command(get, item + end, a_set),
        "get, miss": Command(get, end),
    }
    for hits in (99, 95, 80, 50):
        found[f"get, {hits}% hits"] = Command(get, item + end, a_set, hits=hits, miss=end)
    for keys in (10, 100):
        for hits in (100, 50):
            name = f"get of {keys}, " + ("hits" if hits == 100 else f"{hits}% hits")
            found[name] = Command(get, item, a_set, hits=hits, keys=keys, end=end)
    noop: dict[str, Any] = {"last": b"mn\r\n", "last_reply": b"MN\r\n"}
    later = b" <key> 5 600 %d\r\n%b\r\n" % (sizes.value, value)
    unique = b"VALUE <key> 0 %d <cas unique>\r\n%b\r\n" % (sizes.value, value) + end
    return found | {
        "get, flags and ttl": Command(get, item + end, b"set" + later),
        "gets, hit": Command(b"gets <key>\r\n", unique, a_set),
        "gets of 10": Command(b"gets <key>\r\n", unique, a_set, keys=10),
        "gets, miss": Command(b"gets <key>\r\n", end),
        "set": Command(a_set, _STORED, a_set),
        "set, flags and ttl": Command(b"set" + later, _STORED, a_set),
        "set noreply; mn": Command(a_set.replace(b"\r\n", b" noreply\r\n", 1), b"", a_set, **noop),
        "add, present": Command(b"add" + stored, b"NOT_STORED\r\n", a_set),
        "replace": Command(b"replace" + stored, _STORED, a_set),
        "append nothing": Command(b"append <key> 0 0 0\r\n\r\n", _STORED, a_set),
        "prepend nothing": Command(b"prepend <key> 0 0 0\r\n\r\n", _STORED, a_set),
        "cas": Command(
            b"cas <key> 0 0 %d <cas unique>\r\n%b\r\n" % (sizes.value, value), _STORED, a_set
        ),
        "cas, absent": Command(
            b"cas <key> 0 0 %d 1\r\n%b\r\n" % (sizes.value, value), b"NOT_FOUND\r\n"
        ),
        "incr": Command(b"incr <key> 1\r\n", _NUMBER + b"\r\n", number),
        "incr, miss": Command(b"incr <key> 1\r\n", b"NOT_FOUND\r\n"),
        "decr": Command(b"decr <key> 0\r\n", _NUMBER + b"\r\n", number),
        "delete": Command(b"delete <key>\r\n", b"DELETED\r\n", a_set, again=True),
        "delete, miss": Command(b"delete <key>\r\n", b"NOT_FOUND\r\n"),
        "touch": Command(b"touch <key> 0\r\n", b"TOUCHED\r\n", a_set),
        "touch, ttl": Command(b"touch <key> 600\r\n", b"TOUCHED\r\n", a_set),
        "touch, miss": Command(b"touch <key> 600\r\n", b"NOT_FOUND\r\n"),
        "gat": Command(b"gat 0 <key>\r\n", item + end, a_set),
        "gat, ttl": Command(b"gat 600 <key>\r\n", item + end, a_set),
        "gat of 10": Command(b"gat 600 <key>\r\n", item, a_set, keys=10, end=end),
        "gats": Command(b"gats 600 <key>\r\n", unique, a_set),
    }


def _meta(sizes: Sizes) -> dict[str, Command]:
    value = b"v" * sizes.value
    rest = b"\r\n%b\r\n" % value
    size = b"%d" % sizes.value
    a_set = b"set <key> 0 0 " + size + rest
    number = b"set <key> 0 0 10\r\n%b\r\n" % _NUMBER
    noop: dict[str, Any] = {"last": b"mn\r\n", "last_reply": b"MN\r\n"}
    quiet = b"mg <key> v q\r\n"
    details = b"VA %b s%b t-1 f0" % (size, size) + rest
    return {
        "mg, hit": Command(b"mg <key> v\r\n", b"VA " + size + rest, a_set),
        "mg, miss": Command(b"mg <key> v\r\n", b"EN\r\n"),
        "mg s t f v": Command(b"mg <key> s t f v\r\n", details, a_set),
        "mg k O v": Command(b"mg <key> k O7 v\r\n", b"VA %b k<key> O7" % size + rest, a_set),
        "mg c v": Command(b"mg <key> v c\r\n", b"VA %b c<cas unique>" % size + rest, a_set),
        "mg T v": Command(b"mg <key> v T600\r\n", b"VA " + size + rest, a_set),
        "mg h l t v": Command(b"mg <key> h l t v\r\n", b"VA %b h1 l0 t-1" % size + rest, a_set),
        "mg N R v": Command(b"mg <key> v N30 R30\r\n", b"VA " + size + rest, a_set),
        "mg q, hit; mn": Command(quiet, b"VA " + size + rest, a_set, **noop),
        "mg q, 50% hits; mn": Command(quiet, b"VA " + size + rest, a_set, hits=50, **noop),
        "ms": Command(b"ms <key> " + size + rest, b"HD\r\n", a_set),
        "ms q; mn": Command(b"ms <key> " + size + b" q" + rest, b"", a_set, **noop),
        "ms F T": Command(b"ms <key> %b F5 T600" % size + rest, b"HD\r\n", a_set),
        "ms c": Command(b"ms <key> " + size + b" c" + rest, b"HD c<cas unique>\r\n", a_set),
        "ms ME, present": Command(b"ms <key> " + size + b" ME" + rest, b"NS\r\n", a_set),
        "ms MA": Command(b"ms <key> 0 MA\r\n\r\n", b"HD\r\n", a_set),
        "ms I": Command(b"ms <key> " + size + b" I" + rest, b"HD\r\n", a_set),
        "ms, compared": Command(b"ms <key> " + size + b" C<cas unique>" + rest, b"HD\r\n", a_set),
        "md": Command(b"md <key>\r\n", b"HD\r\n", a_set, again=True),
        "md, miss": Command(b"md <key>\r\n", b"NF\r\n"),
        "md q; mn": Command(b"md <key> q\r\n", b"", a_set, again=True, **noop),
        "md I T": Command(b"md <key> I T30\r\n", b"HD\r\n", a_set),
        "ma": Command(b"ma <key> v\r\n", b"VA 10\r\n%b\r\n" % _NUMBER, number),
        "ma q; mn": Command(b"ma <key> q\r\n", b"", number, **noop),
        "ma N J T v": Command(b"ma <key> N0 J1 T600 v\r\n", b"VA 10\r\n%b\r\n" % _NUMBER, number),
        "mn": Command(b"mn\r\n", b"MN\r\n"),
    }


def _binary(sizes: Sizes) -> dict[str, Command]:
    value = b"v" * sizes.value

    def packet(opcode: int, extras: bytes = b"", content: bytes = b"") -> bytes:
        body = len(extras) + sizes.key + len(content)
        head = pack(">BBHBxHIIQ", 0x80, opcode, sizes.key, len(extras), 0, body, 0, 0)
        return head + extras + _KEY + content

    def answer(size: int = 0) -> bytes:
        return bytes(_HEADER + size)

    a_set = packet(0x01, bytes(8), value)
    item = answer(4 + sizes.value)
    with_key = answer(4 + sizes.key + sizes.value)
    number = packet(0x01, bytes(8), _NUMBER)
    stop = pack(">BBHBxHIIQ", 0x80, 0x0A, 0, 0, 0, 0, 0, 0)
    noop: dict[str, Any] = {"last": stop, "last_reply": answer()}
    return {
        "binary get, hit": Command(packet(0x00), item, a_set),
        "binary get, miss": Command(packet(0x00), answer(len(b"Not found"))),
        "binary getk": Command(packet(0x0C), with_key, a_set),
        "binary getq; noop": Command(packet(0x09), item, a_set, **noop),
        "binary getkq, hit": Command(packet(0x0D), with_key, a_set, **noop),
        "binary getkq, 50%": Command(packet(0x0D), with_key, a_set, hits=50, **noop),
        "binary set": Command(a_set, answer(), a_set),
        "binary set, ttl": Command(packet(0x01, pack(">II", 5, 600), value), answer(), a_set),
        "binary setq; noop": Command(packet(0x11, bytes(8), value), b"", a_set, **noop),
        "binary replace": Command(packet(0x03, bytes(8), value), answer(), a_set),
        "binary delete": Command(packet(0x04), answer(), a_set, again=True),
        "binary deleteq; noop": Command(packet(0x14), b"", a_set, again=True, **noop),
        "binary touch": Command(packet(0x1C, pack(">I", 600)), answer(4), a_set),
        "binary gat": Command(packet(0x1D, pack(">I", 600)), item, a_set),
        "binary incr": Command(packet(0x05, pack(">QQI", 1, 0, 0)), answer(8), number),
        "binary append": Command(packet(0x0E), answer(), a_set),
        "binary prepend": Command(packet(0x0F), answer(), a_set),
        "binary noop": Command(stop, answer()),
    }
