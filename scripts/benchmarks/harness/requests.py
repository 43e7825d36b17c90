"""The requests whose cost the scenario `commands` measures."""

from dataclasses import dataclass
from struct import pack
from typing import Any, Final

__all__ = ["Batch", "Command", "Sizes", "batch", "commands", "store_of"]

_KEY: Final = b"<key>"  # stands for the key
_SMALLEST_KEY: Final = 10
_LONGEST_KEY: Final = 250
_NUMBER: Final = b"1000000000"
_STORED: Final = b"STORED\r\n"
_HEADER: Final = 24  # bytes of a binary packet
_SPREAD: Final = 37  # of hits among misses; has no factor in common with 100


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
        """Return what is wrong with them; empty if nothing is."""
        if not _SMALLEST_KEY <= self.key <= _LONGEST_KEY:
            return f"--key-size must be from {_SMALLEST_KEY} to {_LONGEST_KEY}"
        return "" if self.value > 0 else "--value-size must be positive"


@dataclass(frozen=True, slots=True)
class Command:
    """A command to measure; ``<key>`` stands for a key.

    Attributes:
        request: the request.
        reply: what the server replies for a key that was stored; only the length counts.
        before: a set that is sent first; empty for none.
        again: whether that is necessary before each request.
        hits: how many of 100 keys were stored.
        miss: the reply for the others.
        keys: keys per request, separated by spaces; each counts as one operation.
        end: what follows the replies for all keys of a request.
        last: a request that follows the others in each write.
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
        """Whether it is one of the binary protocol."""
        return self.request[0] == 0x80


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that are sent in one write.

    Attributes:
        data: the requests.
        size: bytes of the replies.
        operations: the number of keys they ask for.
    """

    data: bytes
    size: int
    operations: int


def batch(command: Command, sizes: Sizes, number: int, first: int, requests: int) -> Batch:
    """Return some requests.

    Args:
        command: the command.
        sizes: the sizes of keys and values.
        number: a number of the command below 100, by which its keys differ from those of others.
        first: the number of the first key.
        requests: how many.
    """
    found = len(command.reply.replace(_KEY, bytes(sizes.key)))
    parts, size = [], requests * len(command.end) + len(command.last_reply)
    for request in range(requests):
        names = []
        for index in range(first + request * command.keys, first + (request + 1) * command.keys):
            hit = index * _SPREAD % 100 < command.hits
            names.append(b"%c%02d%0*d" % (b"ka"[not hit], number, sizes.key - 3, index))
            size += found if hit else len(command.miss)
        parts.append(command.request.replace(_KEY, b" ".join(names)))
    return Batch(b"".join(parts) + command.last, size, requests * command.keys)


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
    return found | {
        "gets, miss": Command(b"gets <key>\r\n", end),
        "set": Command(a_set, _STORED, a_set),
        "add, present": Command(b"add" + stored, b"NOT_STORED\r\n", a_set),
        "replace": Command(b"replace" + stored, _STORED, a_set),
        "append nothing": Command(b"append <key> 0 0 0\r\n\r\n", _STORED, a_set),
        "cas, absent": Command(
            b"cas <key> 0 0 %d 1\r\n%b\r\n" % (sizes.value, value), b"NOT_FOUND\r\n"
        ),
        "incr": Command(b"incr <key> 1\r\n", _NUMBER + b"\r\n", number),
        "decr": Command(b"decr <key> 0\r\n", _NUMBER + b"\r\n", number),
        "delete": Command(b"delete <key>\r\n", b"DELETED\r\n", a_set, again=True),
        "delete, miss": Command(b"delete <key>\r\n", b"NOT_FOUND\r\n"),
        "touch": Command(b"touch <key> 0\r\n", b"TOUCHED\r\n", a_set),
        "gat": Command(b"gat 0 <key>\r\n", item + end, a_set),
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
        "mg q, hit; mn": Command(quiet, b"VA " + size + rest, a_set, **noop),
        "mg q, 50% hits; mn": Command(quiet, b"VA " + size + rest, a_set, hits=50, **noop),
        "ms": Command(b"ms <key> " + size + rest, b"HD\r\n", a_set),
        "ms q; mn": Command(b"ms <key> " + size + b" q" + rest, b"", a_set, **noop),
        "md": Command(b"md <key>\r\n", b"HD\r\n", a_set, again=True),
        "ma": Command(b"ma <key> v\r\n", b"VA 10\r\n%b\r\n" % _NUMBER, number),
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
        "binary getkq, hit": Command(packet(0x0D), with_key, a_set, **noop),
        "binary getkq, 50%": Command(packet(0x0D), with_key, a_set, hits=50, **noop),
        "binary set": Command(a_set, answer(), a_set),
        "binary setq; noop": Command(packet(0x11, bytes(8), value), b"", a_set, **noop),
        "binary incr": Command(packet(0x05, pack(">QQI", 1, 0, 0)), answer(8), number),
        "binary append": Command(packet(0x0E), answer(), a_set),
    }
