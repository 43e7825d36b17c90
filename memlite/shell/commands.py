"""The commands the shell knows: their syntax, what they do, and what the server answers."""

from dataclasses import dataclass

from memlite.shell.replies import Shape

__all__ = ["ARGUMENTS", "COMMANDS", "LOCAL", "STORAGE", "Command"]


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the text protocol, or of the shell itself.

    Attributes:
        name: its first word.
        syntax: what follows; capitals are to be replaced, brackets may be left out.
        summary: what it does, in a few words.
        example: a line to type.
        group: under which ``help`` lists it.
        reply: what the server answers.
        more: what else ``help NAME`` says.
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
    "The value stands in quotes, and its length is counted for you. Between double quotes "
    r"\n \r \t \0 \\ \" and \xHH (any byte) are escapes; between single quotes only \\ and \'."
    "\n"
)
_NUMBERS = (
    "FLAGS is a number kept with the item (0 if left out). EXPTIME is in seconds, or above 30 days "
    "a Unix time; 0, or none: it does not expire; negative: at once."
)
_BY_LENGTH = (
    "\nmemcached's own form works as well: with the number of bytes in place of the value, which "
    "the shell then asks for: "
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
        + _BY_LENGTH
        + f"{name} KEY FLAGS EXPTIME BYTES",
    )


_META = "Each flag is a letter, with its token right behind it: T60."

_LIST = (
    _storage("set", "store a value", 'set greeting "hello world" 0 60'),
    _storage("add", "store, if there is none yet", 'add lock "me" 0 10'),
    _storage("replace", "store, if there is one already", 'replace greeting "hi"'),
    _storage("append", "put behind the value that is there", 'append log " more"', numbers=False),
    _storage("prepend", "put before the value that is there", 'prepend log "> "', numbers=False),
    Command(
        "cas",
        'KEY "VALUE" [FLAGS EXPTIME] UNIQUE',
        "store, if nobody has since gets",
        'cas greeting "hi" 12',
        "store",
        Shape.FENCED,
        f"UNIQUE is the number that gets shows. {_VALUE}{_NUMBERS}{_BY_LENGTH}"
        "cas KEY FLAGS EXPTIME BYTES UNIQUE",
    ),
    Command(
        "get",
        "KEY...",
        "show values",
        "get greeting",
        "read",
        Shape.ITEMS,
        "Of a long value a terminal shows the beginning. To have it all in a file:\n"
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
        more="The value must be a decimal number below 2^64, beyond which it begins at 0 again.",
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
        "read an item; flags say what of it",
        "mg greeting v t c",
        "meta",
        Shape.META,
        _META,
    ),
    Command(
        "ms",
        'KEY "VALUE" [FLAG...]',
        "store an item; flags say how",
        'ms greeting "hello" T60 c',
        "meta",
        Shape.FENCED,
        f"{_META} {_VALUE}{_BY_LENGTH}ms KEY BYTES [FLAG...]",
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
    Command("me", "KEY [b]", "what the server knows of an item", "me greeting", "meta", Shape.META),
    Command("mn", "", "nothing, and say so", "mn", "meta", Shape.META),
    Command(
        "stats",
        "[GROUP]",
        "statistics",
        "stats items",
        "server",
        Shape.ROWS,
        "Which groups there are depends on the server; TAB shows those known here.",
    ),
    Command("version", "", "the server's version", "version", "server"),
    Command(
        "flush_all",
        "[DELAY]",
        "forget all items",
        "flush_all",
        "server",
        more="DELAY: in so many seconds, not now.",
    ),
    Command("verbosity", "LEVEL", "how much the server logs", "verbosity 1", "server"),
    Command("cache_memlimit", "MEGABYTES", "how much it may store", "cache_memlimit 128", "server"),
    Command(
        "watch",
        "[KIND...]",
        "follow what the server does",
        "watch mutations evictions",
        "server",
        Shape.STREAM,
        "Lines come until ctrl-c.",
    ),
    Command(
        "lru_crawler",
        "TASK [ARGUMENT]",
        "list all keys; expire items",
        "lru_crawler metadump all",
        "server",
        more="metadump shows what is known of each item, mgdump each key as a line to ask for it. "
        "ctrl-c ends either.",
    ),
    Command("lru", "TASK ARGUMENT...", "tune the LRU", "lru mode segmented", "server"),
    Command(
        "slabs", "TASK ARGUMENT...", "move memory between classes", "slabs automove 1", "server"
    ),
    Command("refresh_certs", "", "read TLS certificates again", "refresh_certs", "server"),
    Command(
        "shutdown",
        "[graceful]",
        "stop the server, if allowed",
        "shutdown graceful",
        "server",
        Shape.LAST,
    ),
    Command("help", "[COMMAND]", "this list, or more about one", "help set", "shell"),
    Command(
        "auth",
        "USER",
        "authenticate; asks for the password",
        "auth ada",
        "shell",
        more="Sends user and password as memcached's text protocol has it (-Y), now and whenever "
        "the shell connects again. The password is not shown and not kept in the history.",
    ),
    Command("quit", "", "leave; so do exit and ctrl-d", "quit", "shell"),
)

COMMANDS: dict[str, Command] = {command.name: command for command in _LIST}
"""Every command by its name, in the order ``help`` lists them."""

LOCAL = {command.name for command in _LIST if command.group == "shell"} | {"exit"}
"""Those the shell carries out itself."""

STORAGE = {name for name, command in COMMANDS.items() if '"VALUE"' in command.syntax}
"""Those with a value."""

_KINDS = {
    "fetchers": "items that are read",
    "mutations": "items that are stored",
    "evictions": "items that make room",
    "deletions": "items that are deleted",
    "connevents": "connections opened and closed",
    "proxyreqs": "requests of the proxy",
    "proxyevents": "events of the proxy",
    "proxyuser": "messages of the proxy's scripts",
}
_WHICH = {"all": "of all classes", "hash": "by walking the hash table"}

ARGUMENTS: dict[str, dict[str, str]] = {
    "stats": {
        "settings": "how the server was started",
        "items": "items by class",
        "slabs": "memory by class",
        "sizes": "how many items of which size",
        "conns": "connections",
        "latency": "how long commands take (memlite)",
        "backend": "where items are stored (memlite)",
        "hotkeys": "keys asked for most (memlite)",
        "detail": "counts by key prefix: on, off, dump",
        "cachedump": "some keys of a class: CLASS LIMIT",
        "reset": "begin counting again",
        "extstore": "storage on disk (memcached)",
        "proxy": "the proxy (memcached)",
    },
    "stats detail": {"on": "begin", "off": "end", "dump": "show"},
    "watch": _KINDS,
    "lru_crawler": {
        "metadump": "a line about each item",
        "mgdump": "the key of each item",
        "crawl": "expire items now: all, or class ids",
        "enable": "start the crawler",
        "disable": "stop it",
        "sleep": "microseconds between items",
        "tocrawl": "items of each class to look at",
    },
    "lru_crawler metadump": _WHICH,
    "lru_crawler mgdump": _WHICH,
    "lru_crawler crawl": {"all": "of all classes"},
    "lru": {"mode": "flat or segmented", "tune": "shares of the LRUs", "temp_ttl": "TTL"},
    "lru mode": {"flat": "one list", "segmented": "hot, warm and cold"},
    "slabs": {"reassign": "SOURCE DESTINATION", "automove": "0, 1 or 2"},
    "shutdown": {"graceful": "let commands under way finish"},
}
"""Which words may follow which."""
