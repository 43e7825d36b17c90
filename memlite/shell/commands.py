"""The commands the shell knows: their syntax, descriptions and replies."""

from dataclasses import dataclass

from memlite.client.replies import Shape

__all__ = ["ARGUMENTS", "COMMANDS", "LOCAL", "STORAGE", "Command"]


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the text protocol, or of the shell itself.

    Attributes:
        name: its first word.
        syntax: its arguments; words in capitals are placeholders, brackets mark optional parts.
        summary: what it does, in a few words.
        example: an example line.
        group: the group in which ``help`` lists it.
        reply: the shape of the server's reply.
        more: further text for ``help NAME``.
    """

    name: str
    syntax: str
    summary: str
    example: str
    group: str
    reply: Shape = Shape.LINE
    more: str = ""

    @property
    def usage(self) -> str:
        """Name and syntax."""
        return f"{self.name} {self.syntax}".rstrip()


_VALUE = (
    "The value is quoted, and its length is counted for you. Within double quotes "
    r"\n \r \t \0 \\ \" and \xHH (any byte) are escapes; within single quotes only \\ and \'."
    "\n"
)
_NUMBERS = (
    "FLAGS is a number stored with the item (default: 0). EXPTIME is in seconds, or above 30 days "
    "a Unix timestamp; 0, the default, never expires; a negative number expires immediately."
)
_LENGTH_FORM = (
    "\nmemcached's own form works as well. It has the number of bytes instead of the value, which "
    "the shell then prompts for: "
)


def _storage(name: str, summary: str, example: str, *, numbers: bool = True) -> Command:
    return Command(
        name,
        'KEY "VALUE" [FLAGS [EXPTIME]]',
        summary,
        example,
        "store",
        Shape.FENCED,
        _VALUE
        + (_NUMBERS if numbers else "FLAGS and EXPTIME have no effect here.")
        + _LENGTH_FORM
        + f"{name} KEY FLAGS EXPTIME BYTES",
    )


_META = "Each flag is a letter immediately followed by its token, if any: T60."

_LIST = (
    _storage("set", "store a value", 'set greeting "hello world" 0 60'),
    _storage("add", "store only if the key is new", 'add lock "me" 0 10'),
    _storage("replace", "store only if the key exists", 'replace greeting "hi"'),
    _storage("append", "add to the end of a value", 'append log " more"', numbers=False),
    _storage("prepend", "add to the start of a value", 'prepend log "> "', numbers=False),
    Command(
        "cas",
        'KEY "VALUE" [FLAGS EXPTIME] UNIQUE',
        "store if unchanged since gets",
        'cas greeting "hi" 12',
        "store",
        Shape.FENCED,
        f"UNIQUE is the number that gets shows. {_VALUE}{_NUMBERS}{_LENGTH_FORM}"
        "cas KEY FLAGS EXPTIME BYTES UNIQUE",
    ),
    Command(
        "get",
        "KEY...",
        "show values",
        "get greeting",
        "read",
        Shape.ITEMS,
        "On a terminal only the beginning of a long value is shown. To save all of it:\n"
        "memlite shell --raw HOST:PORT get KEY > FILE",
    ),
    Command("gets", "KEY...", "show values and cas uniques", "gets a b", "read", Shape.ITEMS),
    Command(
        "gat", "EXPTIME KEY...", "show values and set their TTL", "gat 60 a", "read", Shape.ITEMS
    ),
    Command(
        "gats", "EXPTIME KEY...", "the same, with cas uniques", "gats 60 a", "read", Shape.ITEMS
    ),
    Command("delete", "KEY", "remove an item", "delete greeting", "change"),
    Command(
        "incr",
        "KEY NUMBER",
        "add to a number",
        "incr visits 1",
        "change",
        more="The value must be a decimal number below 2^64, at which it wraps around to 0.",
    ),
    Command(
        "decr",
        "KEY NUMBER",
        "subtract from a number",
        "decr stock 1",
        "change",
        more="It stops at 0.",
    ),
    Command("touch", "KEY EXPTIME", "set the TTL", "touch greeting 60", "change"),
    Command(
        "mg",
        "KEY [FLAG...]",
        "read an item; flags select what",
        "mg greeting v t c",
        "meta",
        Shape.META,
        _META,
    ),
    Command(
        "ms",
        'KEY "VALUE" [FLAG...]',
        "store an item; flags control how",
        'ms greeting "hello" T60 c',
        "meta",
        Shape.FENCED,
        f"{_META} {_VALUE}{_LENGTH_FORM}ms KEY BYTES [FLAG...]",
    ),
    Command(
        "md",
        "KEY [FLAG...]",
        "remove or invalidate an item",
        "md greeting I T30",
        "meta",
        Shape.META,
        _META,
    ),
    Command(
        "ma",
        "KEY [FLAG...]",
        "add to or subtract from a number",
        "ma visits v N0 J1",
        "meta",
        Shape.META,
        _META,
    ),
    Command("me", "KEY [b]", "show an item's metadata", "me greeting", "meta", Shape.META),
    Command("mn", "", "do nothing but reply", "mn", "meta", Shape.META),
    Command(
        "stats",
        "[GROUP]",
        "show statistics",
        "stats items",
        "server",
        Shape.ROWS,
        "The available groups depend on the server; TAB lists the common ones.",
    ),
    Command("version", "", "show the server's version", "version", "server"),
    Command(
        "flush_all",
        "[DELAY]",
        "invalidate all items",
        "flush_all",
        "server",
        more="DELAY is in seconds; without it, items are invalidated immediately.",
    ),
    Command("verbosity", "LEVEL", "set the log level", "verbosity 1", "server"),
    Command("cache_memlimit", "MEGABYTES", "set the memory limit", "cache_memlimit 128", "server"),
    Command(
        "watch",
        "[KIND...]",
        "follow the server's events",
        "watch mutations evictions",
        "server",
        Shape.STREAM,
        "Events are shown until ctrl-c.",
    ),
    Command(
        "lru_crawler",
        "TASK [ARGUMENT]",
        "list all keys; expire items",
        "lru_crawler metadump all",
        "server",
        more="metadump shows each item's metadata, mgdump a command to fetch each key. "
        "Stop either with ctrl-c.",
    ),
    Command("lru", "TASK ARGUMENT...", "tune the LRU", "lru mode segmented", "server"),
    Command(
        "slabs", "TASK ARGUMENT...", "move memory between classes", "slabs automove 1", "server"
    ),
    Command("refresh_certs", "", "reload TLS certificates", "refresh_certs", "server"),
    Command(
        "shutdown",
        "[graceful]",
        "stop the server, if permitted",
        "shutdown graceful",
        "server",
        Shape.LAST,
    ),
    Command("help", "[COMMAND]", "list commands, or describe one", "help set", "shell"),
    Command(
        "auth",
        "USER",
        "authenticate; prompts for the password",
        "auth ada",
        "shell",
        more="Sends user and password in memcached's text protocol (-Y), now and whenever the "
        "shell reconnects. The password is neither shown nor saved in the history.",
    ),
    Command("quit", "", "leave the shell, as exit and ctrl-d do", "quit", "shell"),
)

COMMANDS: dict[str, Command] = {command.name: command for command in _LIST}
"""All commands by name, in the order ``help`` lists them."""

LOCAL = {command.name for command in _LIST if command.group == "shell"} | {"exit"}
"""Names of the commands the shell executes itself."""

STORAGE = {name for name, command in COMMANDS.items() if '"VALUE"' in command.syntax}
"""Names of the commands with a value."""

_EVENTS = {
    "fetchers": "items that are read",
    "mutations": "items that are stored",
    "evictions": "items that are evicted",
    "deletions": "items that are deleted",
    "connevents": "connections opened and closed",
    "proxyreqs": "requests of the proxy",
    "proxyevents": "events of the proxy",
    "proxyuser": "messages of the proxy's scripts",
}
_SCOPES = {"all": "all classes", "hash": "walk the hash table"}

ARGUMENTS: dict[str, dict[str, str]] = {
    "stats": {
        "settings": "the server's settings",
        "items": "items by class",
        "slabs": "memory by class",
        "sizes": "histogram of item sizes",
        "conns": "connections",
        "latency": "command latencies (memlite)",
        "backend": "the storage backend (memlite)",
        "hotkeys": "most requested keys (memlite)",
        "detail": "counts by key prefix: on, off, dump",
        "cachedump": "some keys of a class: CLASS LIMIT",
        "reset": "reset the counters",
        "extstore": "storage on disk (memcached)",
        "proxy": "the proxy (memcached)",
    },
    "stats detail": {"on": "start counting", "off": "stop counting", "dump": "show the counts"},
    "watch": _EVENTS,
    "lru_crawler": {
        "metadump": "the metadata of each item",
        "mgdump": "the key of each item",
        "crawl": "expire items now: all, or class ids",
        "enable": "start the crawler",
        "disable": "stop it",
        "sleep": "microseconds between items",
        "tocrawl": "items to visit in each class",
    },
    "lru_crawler metadump": _SCOPES,
    "lru_crawler mgdump": _SCOPES,
    "lru_crawler crawl": {"all": "all classes"},
    "lru": {"mode": "flat or segmented", "tune": "shares of the LRUs", "temp_ttl": "TTL"},
    "lru mode": {"flat": "one list", "segmented": "hot, warm and cold"},
    "slabs": {"reassign": "SOURCE DESTINATION", "automove": "0, 1 or 2"},
    "shutdown": {"graceful": "finish commands in progress"},
}
"""The known arguments after a command, or after a command and its first argument."""
