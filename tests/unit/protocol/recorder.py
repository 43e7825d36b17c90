"""A handler that records calls, and a text parser that feeds it."""

from memlite.protocol import Limits, TextParser
from memlite.protocol.handler import NO_SHORTCUTS
from memlite.protocol.meta import MetaRequest
from memlite.protocol.text_table import SET_FRAMED

# An item with a short key fits if its value has up to about 900 bytes.
LIMITS = Limits(item_size=1024, commands_per_read=1_000_000)

BAD_FORMAT = b"CLIENT_ERROR bad command line format\r\n"
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

    shortcuts = NO_SHORTCUTS

    def __init__(self):
        self.calls = []

    def execute(self, command, arguments):
        if command is SET_FRAMED:
            self.set_framed(*arguments)
        else:
            # Lists are copied, because the handler must not keep the parser's own.
            self.calls.append((command.name, *map(plain, arguments)))

    def try_get(self, line):
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


def bad_chunk(noreply=False, key=b"a"):
    return ("bad_chunk", key, noreply)


def admin(*words, noreply=False):
    return ("admin", list(words), noreply)
