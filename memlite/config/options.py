"""The table of options.

Every option has a row in `OPTIONS`. The command line, the ``MEMLITE_*`` variables, the TOML file,
``--help``, ``--print-config`` and the reference page are all derived from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from memlite.config.extended import ExtendedOptions
from memlite.config.parsers import (
    Choice,
    addresses,
    character,
    duration,
    http_address,
    integer,
    item_size,
    node_name,
    nonempty,
    number,
    octal_mode,
    one_in,
    otlp_url,
    size,
    switch,
    threads,
)
from memlite.config.settings import Config

__all__ = ["ENVIRONMENT_PREFIX", "OPTIONS", "OPTIONS_BY_NAME", "REFUSED", "Option"]

ENVIRONMENT_PREFIX = "MEMLITE_"


class Option(NamedTuple):
    """One setting.

    Attributes:
        name: the long flag; with ``_`` in place of ``-``, the field in `Config`.
        help: the help text, in a line or two.
        short: the one-letter flag.
        metavar: the name of the value in help texts; None for a switch.
        parse: converts the value from text; raises ValueError.
        repeated: what several occurrences mean: "append" concatenates their values, "count"
            counts them, None lets the last one win.
        effect: False for options that only concern memcached's allocator and threads.
    """

    name: str
    help: str
    short: str | None = None
    metavar: str | None = None
    parse: Callable[[str], Any] = switch
    repeated: str | None = None
    effect: bool = True

    @property
    def field(self) -> str:
        """The field in `Config`."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return ENVIRONMENT_PREFIX + self.field.upper()


_PORT = integer(-1, 65535)
_COUNT = integer(1, 2**31 - 1)

OPTIONS: tuple[Option, ...] = (
    Option("port", "TCP port to listen on; 0 or -1 for any free one", "p", "NUM", _PORT),
    Option(
        "udp-port",
        "UDP port to listen on, and the TCP port too unless -p is given; 0 for none, -1 for any "
        "free one",
        "U",
        "NUM",
        _PORT,
    ),
    Option(
        "unix-socket",
        "UNIX socket to listen on (disables network support)",
        "s",
        "FILE",
        nonempty,
    ),
    Option("unix-mask", "access mask of the UNIX socket, in octal", "a", "MASK", octal_mode),
    Option("enable-shutdown", 'enable the "shutdown" command', "A"),
    Option(
        "listen",
        "address to listen on: host, host:port or [IPv6]:port; separate several by commas, or "
        "repeat the option. Default: loopback only (memcached: all interfaces). With -Z an "
        "address can be prefixed with notls:, btls: (TLS without client certificates) or mtls: "
        "(client certificates are required)",
        "l",
        "ADDR",
        addresses,
        "append",
    ),
    Option("enable-ssl", "TLS on all TCP addresses; needs -o ssl_chain_cert", "Z"),
    Option("daemon", "run as a daemon; the command returns when the server is ready", "d"),
    Option("enable-coredumps", "maximize the core file limit", "r"),
    Option(
        "user",
        "run as this user, who also owns the UNIX socket (only when started as root)",
        "u",
        "USER",
        nonempty,
    ),
    Option(
        "backend",
        "where items are stored: memory://, file:///path/cache.json, gs://bucket/prefix, "
        "valkey://host:port/prefix",
        None,
        "URL",
        nonempty,
    ),
    Option(
        "durability",
        "for file://: always (reply after the fsync), everysec or none",
        None,
        "WHEN",
        Choice("always", "everysec", "none"),
    ),
    Option(
        "join",
        "join a cluster whose member list is kept in gs://bucket/prefix, "
        "valkey://host:port/prefix (valkeys: with TLS) or memcached://host:port/prefix "
        "(memcacheds); the node starts without items",
        None,
        "URL",
        nonempty,
    ),
    Option(
        "name",
        "with --join: the node's name, which determines its keys (default: its address)",
        None,
        "NAME",
        node_name,
    ),
    Option(
        "advertise",
        "with --join: address at which others reach this node (default: the first address it "
        "listens on)",
        None,
        "HOST:PORT",
        nonempty,
    ),
    Option(
        "spare",
        "with --join: join as a spare, without keys, until memlite cluster add",
    ),
    Option(
        "near-cache",
        "size of an in-memory cache in front of the backend: bytes, or with suffix k, m, g; 0: "
        "none",
        None,
        "SIZE",
        size,
    ),
    Option(
        "near-cache-ttl",
        "seconds for which the near cache answers without consulting the backend",
        None,
        "SECONDS",
        number(0, inclusive=False),
    ),
    Option(
        "write-back",
        "reply to a set before it is stored, and store it within about a second",
    ),
    Option("memory-limit", "item memory in megabytes", "m", "NUM", integer(1, 2**31 - 1)),
    Option("disable-evictions", "return an error when memory is full instead of evicting", "M"),
    Option(
        "eviction",
        "eviction policy: s3fifo, or lru for comparison",
        None,
        "NAME",
        Choice("s3fifo", "lru"),
    ),
    Option(
        "conn-limit",
        "max simultaneous connections; all can be used (memcached reserves some)",
        "c",
        "NUM",
        _COUNT,
    ),
    Option("lock-memory", "lock all paged memory", "k"),
    Option(
        "verbose",
        "more messages on stderr; -vv: also commands and replies",
        "v",
        None,
        integer(0, 10),
        "count",
    ),
    Option("pidfile", "write the process ID to this file", "P", "FILE", nonempty),
    Option(
        "slab-growth-factor",
        "growth factor of the size classes in stats items and stats slabs; no other effect",
        "f",
        "NUM",
        number(1, inclusive=False),
    ),
    Option(
        "slab-min-size",
        "bytes for key, value and flags in the smallest size class of these statistics",
        "n",
        "BYTES",
        _COUNT,
    ),
    Option("enable-largepages", "large memory pages (memcached's allocator)", "L", effect=False),
    Option(
        "prefix-delimiter",
        'character between a key\'s prefix and the rest, for "stats detail" (default ":"); '
        "setting it turns on collection",
        "D",
        "CHAR",
        character,
    ),
    Option(
        "threads",
        "worker processes that serve one table of items (memory:// only); auto: one for each core",
        "t",
        "NUM",
        threads,
    ),
    Option(
        "memory-file",
        "keep the items across restarts in this file, best on tmpfs (memory:// only)",
        "e",
        "FILE",
        nonempty,
    ),
    Option(
        "max-reqs-per-event",
        "pipelined requests served before other connections get a turn",
        "R",
        "NUM",
        _COUNT,
    ),
    Option("disable-cas", "disable use of CAS", "C"),
    Option("listen-backlog", "backlog queue limit", "b", "NUM", _COUNT),
    Option(
        "protocol",
        "auto (detected from the first byte), ascii or binary",
        "B",
        "NAME",
        Choice("auto", "ascii", "binary"),
    ),
    Option(
        "dialect",
        'memcached, or lite: the "memcached-lite" protocol used in courses, which has only get of '
        "one key, and set without flags and exptime",
        None,
        "NAME",
        Choice("memcached", "lite"),
    ),
    Option(
        "max-item-size",
        "max item size: bytes, or with suffix k, m, g (1k to 1g)",
        "I",
        "SIZE",
        item_size,
    ),
    Option("disable-flush-all", "disable the flush_all command", "F"),
    Option(
        "disable-dumping",
        'disable "stats cachedump", "detail" and "hotkeys", "lru_crawler metadump" and "mgdump"',
        "X",
    ),
    Option("disable-watch", "disable watch commands", "W"),
    Option(
        "auth-file",
        "require authentication as a user in this file (one user:password per line; reloaded on "
        "SIGHUP); text protocol only, but see -S",
        "Y",
        "FILE",
        nonempty,
    ),
    Option(
        "enable-sasl",
        "require SASL (PLAIN), with the users of -Y or of the file named by MEMCACHED_SASL_PWDB; "
        "binary protocol only, or both protocols with -Y and -B auto",
        "S",
    ),
    Option(
        "auth-timeout",
        "seconds a connection may take to authenticate; 0: no limit",
        None,
        "SECONDS",
        integer(0, 2**31 - 1),
    ),
    Option(
        "extended",
        "comma-separated list of extended options, see below",
        "o",
        "KEY=VALUE,...",
        ExtendedOptions.parse,
        "append",
    ),
    Option(
        "loop",
        "event loop: auto (uvloop if installed), uvloop or asyncio",
        None,
        "NAME",
        Choice("auto", "uvloop", "asyncio"),
    ),
    Option(
        "log-level",
        "debug, info, warning or error (default: set by -v)",
        None,
        "LEVEL",
        Choice("debug", "info", "warning", "error"),
    ),
    Option(
        "log-format",
        "text, or json: one object per line",
        None,
        "FORMAT",
        Choice("text", "json"),
    ),
    Option(
        "stats-interval",
        "log a line of statistics at this interval, in seconds; 0: never",
        None,
        "SECONDS",
        number(0, inclusive=True),
    ),
    Option(
        "slow-log",
        'log commands that take at least this long, such as 10ms, 500us or 1.5s, for "stats slow" '
        'and "watch slow"; 0: none',
        None,
        "TIME",
        duration,
    ),
    Option(
        "http",
        "serve a dashboard, metrics and health over HTTP on this address: port, host:port or "
        "[IPv6]:port; a port alone is on loopback; with -Z it is HTTPS, unless prefixed with "
        "notls: (needs memlite-cache[http])",
        None,
        "ADDR",
        http_address,
    ),
    Option(
        "http-token-file",
        "with --http: require the token on the first line of this file, as a bearer token or as "
        "the password of any user; reloaded on SIGHUP",
        None,
        "FILE",
        nonempty,
    ),
    Option(
        "http-hosts",
        "with --http: host names under which clients may access this server, besides localhost "
        "and the machine's name and addresses; separate several by commas, or repeat the option",
        None,
        "NAMES",
        addresses,
        "append",
    ),
    Option("http-keys", "with --http: show the names of hot keys"),
    Option(
        "http-debug",
        "with --http: serve stacks, memory, event loop and profiles at /debug/, to clients with "
        "the token or, if none is set, only on this machine",
    ),
    Option(
        "http-metric-names",
        "names of the metrics: memlite, memcached (those of memcached_exporter) or both",
        None,
        "NAMES",
        Choice("memlite", "memcached", "both"),
    ),
    Option(
        "otlp",
        "export the metrics over HTTP to an OpenTelemetry receiver, such as "
        "http://localhost:4318, or env for the one in OTEL_EXPORTER_OTLP_ENDPOINT (needs "
        "memlite-cache[otel])",
        None,
        "URL",
        otlp_url,
    ),
    Option(
        "trace-sample",
        "with --otlp: export spans of this share of reads, such as 1/1000 (default: what "
        "OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG say, or none)",
        None,
        "1/N",
        one_in,
    ),
    Option("debug-commands", 'enable "debugtime", which moves the server\'s clock (for tests)'),
)

REFUSED: Mapping[str, tuple[str, str]] = {
    "N": ("napi-ids", "NAPI IDs"),
}
"""memcached's flags for features that memlite lacks: by letter, the long flag and the feature.

They are an error: a server that ignored them would not do what it was told.
"""

OPTIONS_BY_NAME = {option.name: option for option in OPTIONS}

assert {option.field for option in OPTIONS} == {  # noqa: S101 - checks the table at import
    item.name for item in fields(Config)
}
