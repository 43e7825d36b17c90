"""Settings: one table of options, read from flags, environment, file and defaults, in this order.

Every option has a row in `OPTIONS`; the command line, the ``MEMLITE_*`` variables, the TOML file,
``--help``, ``--print-config`` and the reference page all come from it.
"""

import getopt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from memlite.errors import ConfigError
from memlite.extended import ExtendedOptions, plain

__all__ = ["OPTIONS", "REFUSED", "Config", "Option", "Settings", "load"]

MEGABYTE = 1024 * 1024
_SIZE = re.compile(r"([0-9]+)([kmgKMG]?)")
_ENVIRONMENT_PREFIX = "MEMLITE_"
# Read by the build, the tests and other commands, not by the server.
_FOREIGN_VARIABLES = ("MEMLITE_COMPILED", "MEMLITE_TEST_", "MEMLITE_BENCH_", "MEMLITE_SHELL_")
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings a server runs with; `OPTIONS` says what each means."""

    port: int = 11211
    udp_port: int = 0
    unix_socket: str | None = None
    unix_mask: int = 0o700
    listen: tuple[str, ...] = ()
    backend: str = "memory://"
    durability: str = "always"
    near_cache: int = 0
    near_cache_ttl: float = 30
    write_back: bool = False
    memory_limit: int = 64
    disable_evictions: bool = False
    eviction: str = "s3fifo"
    max_item_size: int = MEGABYTE
    conn_limit: int = 1024
    listen_backlog: int = 1024
    max_reqs_per_event: int = 20
    protocol: str = "auto"
    dialect: str = "memcached"
    disable_cas: bool = False
    disable_flush_all: bool = False
    disable_dumping: bool = False
    disable_watch: bool = False
    auth_file: str | None = None
    enable_sasl: bool = False
    auth_timeout: int = 30
    enable_shutdown: bool = False
    enable_ssl: bool = False
    prefix_delimiter: str = ""
    threads: int = 4
    slab_growth_factor: float = 1.25
    slab_min_size: int = 48
    enable_largepages: bool = False
    lock_memory: bool = False
    enable_coredumps: bool = False
    user: str | None = None
    daemon: bool = False
    pidfile: str | None = None
    loop: str = "auto"
    debug_commands: bool = False
    verbose: int = 0
    log_level: str | None = None
    log_format: str = "text"
    stats_interval: float = 0
    extended: ExtendedOptions = field(default_factory=ExtendedOptions)

    @property
    def asks_for_password(self) -> bool:
        """Whether clients have to authenticate."""
        return self.enable_sasl or self.auth_file is not None


# Parsers of one value: from its text, or a ValueError whose text finishes "<option>: …".


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(plain(text))
        except ValueError:
            raise ValueError(f"must be a whole number, not {text!r}") from None
        if number < low:
            raise ValueError(f"must be at least {low}, not {number}")
        if number > high:
            raise ValueError(f"must be at most {high}, not {number}")
        return number

    return parse


def _number(low: float, *, inclusive: bool) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = float(plain(text))
        except ValueError:
            raise ValueError(f"must be a number, not {text!r}") from None
        # Written so that NaN fails too.
        if not (number >= low if inclusive else number > low) or number == float("inf"):
            raise ValueError(f"must be {'at least' if inclusive else 'more than'} {low:g}")
        return number

    return parse


def _octal(text: str) -> int:
    try:
        mask = int(plain(text), 8)
    except ValueError:
        raise ValueError(f"must be an octal mode such as 700, not {text!r}") from None
    if not 0 <= mask <= 0o777:
        raise ValueError(f"must be between 0 and 777, not {text!r}")
    return mask


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"must be a size such as 1048576, 512k or 2m, not {text!r}")
    return int(match[1]) * {"": 1, "k": 1024, "m": MEGABYTE, "g": 1024 * MEGABYTE}[match[2].lower()]


def _item_size(text: str) -> int:
    size = _size(text)
    if not 1024 <= size <= 1024 * MEGABYTE:
        raise ValueError(f"must be between 1k and 1g, not {text}")
    return size


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {text!r}")
        return text

    return parse


def _character(text: str) -> str:
    if len(text) != 1 or not text.isascii() or text.isspace():
        raise ValueError(f"must be one visible ASCII character, not {text!r}")
    return text


def _nonempty(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in text.split(","))
    if not all(addresses):
        raise ValueError(f"has an empty address in {text!r}")
    return addresses


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError(f"must be true or false, not {text!r}")


class Option(NamedTuple):
    """One setting.

    Attributes:
        name: its long flag, and with ``_`` for ``-`` its field in `Config`.
        help: what it does, in a line or two.
        short: its letter.
        metavar: what its value is called; None for a switch.
        parse: makes its value from text; raises ValueError.
        repeated: "append" gathers values, "count" counts how often it was given.
        effect: False for what only makes sense for memcached's allocator and threads.
    """

    name: str
    help: str
    short: str | None = None
    metavar: str | None = None
    parse: Callable[[str], Any] = _flag
    repeated: str | None = None
    effect: bool = True

    @property
    def field(self) -> str:
        """Its name in `Config`."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return _ENVIRONMENT_PREFIX + self.field.upper()


_PORT = _integer(-1, 65535)
_COUNT = _integer(1, 2**31 - 1)

OPTIONS: tuple[Option, ...] = (
    Option("port", "TCP port to listen on; 0 or -1 for any free one", "p", "NUM", _PORT),
    Option(
        "udp-port",
        "UDP port to listen on as well, and TCP's too unless -p is given; 0 for none, -1 for any "
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
        _nonempty,
    ),
    Option("unix-mask", "access mask of the UNIX socket, in octal", "a", "MASK", _octal),
    Option("enable-shutdown", 'enable the "shutdown" command', "A"),
    Option(
        "listen",
        "address to listen on: host, host:port or [IPv6]:port; repeated or separated by commas. "
        "Without it only this machine can connect (memcached: everybody). With -Z it may begin "
        "with notls:, btls: (TLS, and no client certificate is asked for) or mtls: (one is "
        "required)",
        "l",
        "ADDR",
        _addresses,
        "append",
    ),
    Option("enable-ssl", "TLS on all TCP addresses; needs -o ssl_chain_cert", "Z"),
    Option("daemon", "run as a daemon; the command returns when it is ready", "d"),
    Option("enable-coredumps", "maximize the core file limit", "r"),
    Option(
        "user",
        "run as that user, who also gets the UNIX socket (only when started as root)",
        "u",
        "USER",
        _nonempty,
    ),
    Option(
        "backend",
        "where items are kept: memory://, file:///path/cache.json, gs://bucket/prefix",
        None,
        "URL",
        _nonempty,
    ),
    Option(
        "durability",
        "of file://: always (a reply leaves after the fsync), everysec or none",
        None,
        "WHEN",
        _choice("always", "everysec", "none"),
    ),
    Option(
        "near-cache",
        "memory in front of the backend: bytes, or with suffix k, m, g; 0: none",
        None,
        "SIZE",
        _size,
    ),
    Option(
        "near-cache-ttl",
        "seconds for which the near cache answers without asking the backend",
        None,
        "SECONDS",
        _number(0, inclusive=False),
    ),
    Option(
        "write-back",
        "answer set before it is stored, and store it within a second or so",
    ),
    Option("memory-limit", "item memory in megabytes", "m", "NUM", _integer(1, 2**31 - 1)),
    Option("disable-evictions", "return an error when memory is full instead of evicting", "M"),
    Option(
        "eviction",
        "how to choose what makes room: s3fifo, or lru to compare with",
        None,
        "NAME",
        _choice("s3fifo", "lru"),
    ),
    Option(
        "conn-limit",
        "max simultaneous connections; exactly so many are served (memcached keeps some back)",
        "c",
        "NUM",
        _COUNT,
    ),
    Option("lock-memory", "lock all paged memory", "k"),
    Option(
        "verbose",
        "more messages on stderr; -vv: commands and replies too",
        "v",
        None,
        _integer(0, 10),
        "count",
    ),
    Option("pidfile", "save the process id in that file", "P", "FILE", _nonempty),
    Option(
        "slab-growth-factor",
        "growth factor of the size classes in stats items and slabs; of nothing else",
        "f",
        "NUM",
        _number(1, inclusive=False),
    ),
    Option(
        "slab-min-size",
        "bytes for key, value and flags in the smallest size class, in the same places",
        "n",
        "BYTES",
        _COUNT,
    ),
    Option("enable-largepages", "large memory pages (memcached's allocator)", "L", effect=False),
    Option(
        "prefix-delimiter",
        'character between a key\'s prefix and the rest, for "stats detail" (default ":"); '
        "giving it turns the collection on",
        "D",
        "CHAR",
        _character,
    ),
    Option("threads", "threads; memlite serves from one", "t", "NUM", _COUNT, effect=False),
    Option(
        "max-reqs-per-event",
        "pipelined requests served before other connections get their turn",
        "R",
        "NUM",
        _COUNT,
    ),
    Option("disable-cas", "disable use of CAS", "C"),
    Option("listen-backlog", "backlog queue limit", "b", "NUM", _COUNT),
    Option(
        "protocol",
        "auto (by the first byte), ascii or binary",
        "B",
        "NAME",
        _choice("auto", "ascii", "binary"),
    ),
    Option(
        "dialect",
        'memcached, or lite: the classroom\'s "memcached-lite" protocol instead, with get of one '
        "key, set without flags and exptime, and no more",
        None,
        "NAME",
        _choice("memcached", "lite"),
    ),
    Option(
        "max-item-size",
        "max item size: bytes, or with suffix k, m, g (1k to 1g)",
        "I",
        "SIZE",
        _item_size,
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
        "let nobody in without a password of this file, which has a user:password in each line and "
        "is read again on SIGHUP; the text protocol only, but see -S",
        "Y",
        "FILE",
        _nonempty,
    ),
    Option(
        "enable-sasl",
        "SASL (PLAIN) with the users of -Y, or of the file MEMCACHED_SASL_PWDB names; the binary "
        "protocol only, or with -Y and -B auto both",
        "S",
    ),
    Option(
        "auth-timeout",
        "seconds a connection may take to authenticate; 0: any time",
        None,
        "SECONDS",
        _integer(0, 2**31 - 1),
    ),
    Option(
        "extended",
        "comma separated list of extended options, see below",
        "o",
        "KEY=VALUE,...",
        ExtendedOptions.parse,
        "append",
    ),
    Option(
        "loop",
        "event loop: auto (uvloop where there is one), uvloop or asyncio",
        None,
        "NAME",
        _choice("auto", "uvloop", "asyncio"),
    ),
    Option(
        "log-level",
        "debug, info, warning or error (default: by -v)",
        None,
        "LEVEL",
        _choice("debug", "info", "warning", "error"),
    ),
    Option(
        "log-format",
        "text, or json with one object a line",
        None,
        "FORMAT",
        _choice("text", "json"),
    ),
    Option(
        "stats-interval",
        "log a line of statistics every that many seconds; 0: never",
        None,
        "SECONDS",
        _number(0, inclusive=True),
    ),
    Option("debug-commands", 'enable "debugtime", which moves the server\'s clock (for tests)'),
)

REFUSED: Mapping[str, tuple[str, str]] = {
    "e": ("memory-file", "a memory file"),
    "N": ("napi-ids", "NAPI id support"),
}
"""memcached's flags that promise what this version does not have; refused rather than ignored."""

_BY_NAME = {option.name: option for option in OPTIONS}
_BY_SHORT = {option.short: option for option in OPTIONS if option.short}


class Settings(NamedTuple):
    """A configuration and where each of its values came from.

    Attributes:
        config: the values.
        sources: for each option's name its source: ``default``, ``file PATH``,
            ``environment NAME`` or ``flag -x``; of -o, which gathers them, one or more.
        actions: of ``help``, ``version``, ``license`` and ``print-config`` those asked for.
    """

    config: Config
    sources: Mapping[str, str]
    actions: frozenset[str] = frozenset()


_ACTIONS = {"h": "help", "V": "version", "i": "license", None: "print-config"}


def load(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read the settings from the command line's `arguments`, the environment and the file.

    Raises:
        ConfigError: something is wrong with one of them; the text names it, in one line.
    """
    flags, path, actions = _read_flags(arguments)
    if actions & {"help", "version", "license"}:
        return Settings(Config(), {}, actions)
    from_environment = _read_environment(environment)
    path = path or environment.get(_ENVIRONMENT_PREFIX + "CONFIG") or None
    values: dict[str, Any] = {}
    sources = {option.name: "default" for option in OPTIONS}
    for layer in (_read_file(path) if path else {}, from_environment, flags):
        for name, (value, source) in layer.items():
            field_name = _BY_NAME[name].field
            if isinstance(value, ExtendedOptions) and field_name in values:
                # Key by key: what the layers below say of other keys still holds.
                value = values[field_name] + value
                source = f"{sources[name]}, {source}"
            values[field_name] = value
            sources[name] = source
    config = _check(Config(**_implied(values)), sources)
    return Settings(config, sources, actions)


_Layer = dict[str, tuple[Any, str]]


def _read_flags(arguments: Sequence[str]) -> tuple[_Layer, str | None, frozenset[str]]:
    shorts = "".join(
        option.short + (":" if option.metavar else "") for option in OPTIONS if option.short
    )
    shorts += "hVie:N:"
    longs = [option.name + ("=" if option.metavar else "") for option in OPTIONS]
    longs += ["help", "version", "license", "print-config", "config="]
    longs += ["memory-file=", "napi-ids="]
    try:
        pairs, rest = getopt.getopt(list(arguments), shorts, longs)
    except getopt.GetoptError as error:
        hint = _similar_flag(error.opt, longs) if "not recognized" in error.msg else ""
        raise ConfigError(f"{error.msg}{hint} (memlite -h lists the options)") from None
    if rest:
        raise ConfigError(f"unexpected argument {rest[0]!r} (memlite -h lists the options)")
    layer: _Layer = {}
    path = None
    actions = set()
    for flag, text in pairs:
        letter = flag[1:] if len(flag) == 2 else None
        name = flag[2:] if letter is None else None
        refused = [entry for key, entry in REFUSED.items() if letter == key or name == entry[0]]
        if refused:
            raise ConfigError(f"{flag}: {refused[0][1]} is not in this version of memlite")
        if letter in ("h", "V", "i") or name in ("help", "version", "license", "print-config"):
            actions.add(name or _ACTIONS[letter])
        elif name == "config":
            path = text
        else:
            option = _BY_SHORT[letter] if letter else _BY_NAME[name or ""]
            _add(layer, option, "1" if option.metavar is None else text.strip(), f"flag {flag}")
    return layer, path, frozenset(actions)


def _similar_flag(unknown: str, longs: Sequence[str]) -> str:
    import difflib  # only on the way to an error message

    names = [name.rstrip("=") for name in longs]
    close = difflib.get_close_matches(unknown, names, 1) if len(unknown) > 1 else []
    return f", did you mean --{close[0]}?" if close else ""


def _add(layer: _Layer, option: Option, text: str, source: str) -> None:
    label = (
        source.split(maxsplit=1)[1]
        if not source.startswith("file")
        else (f"{source.split(maxsplit=1)[1]}: {option.name}")
    )
    try:
        if "\0" in text:
            raise ValueError("must not hold a NUL")
        value = option.parse(text)
    except ValueError as error:
        raise ConfigError(f"{label}: {error}") from None
    if option.name in layer and option.repeated:
        value = layer[option.name][0] + value
    layer[option.name] = (value, source)


def _read_environment(environment: Mapping[str, str]) -> _Layer:
    by_variable = {option.variable: option for option in OPTIONS}
    layer: _Layer = {}
    for variable, text in environment.items():
        if not variable.startswith(_ENVIRONMENT_PREFIX):
            continue
        if variable == _ENVIRONMENT_PREFIX + "CONFIG" or variable.startswith(_FOREIGN_VARIABLES):
            continue
        option = by_variable.get(variable)
        if option is None:
            raise ConfigError(f"unknown environment variable {variable}")
        _add(layer, option, text, f"environment {variable}")
    return layer


def _read_file(path: str) -> _Layer:
    import tomllib  # here, with pathlib: most servers have no file to wait for them
    from pathlib import Path

    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config: {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path}: {error}") from None
    layer: _Layer = {}
    for key, value in table.items():
        option = _BY_NAME.get(key.replace("_", "-"))
        if option is None:
            raise ConfigError(f"{path}: unknown setting {key!r}")
        if option.name == "unix-mask" and not isinstance(value, str):
            # TOML would read 700 in tens and 0o700 in eights; say it as the flag does.
            raise ConfigError(f'{path}: {key}: must be a string such as "700"')
        _add(layer, option, _toml_text(path, key, value), f"file {path}")
    return layer


def _toml_text(path: str, key: str, value: object) -> str:
    """Return a TOML value as the flag would spell it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        return ",".join(_toml_text(path, key, part) for part in value)
    if isinstance(value, dict) and key == "extended":
        parts = []
        for name, part in value.items():
            if part is False:
                raise ConfigError(f"{path}: {key}.{name}: leave it out instead of false")
            parts.append(name if part is True else f"{name}={_toml_text(path, key, part)}")
        return ",".join(parts)
    raise ConfigError(f"{path}: {key}: cannot be a {type(value).__name__}")


def _implied(values: dict[str, Any]) -> dict[str, Any]:
    # As memcached does: -U alone moves TCP to the same port, and each way of authentication
    # implies its protocol. The lite dialect is one of text.
    if values.get("udp_port") and "port" not in values:
        values["port"] = values["udp_port"]
    if values.get("enable_sasl"):
        values.setdefault("protocol", "binary")
    elif values.get("auth_file") or values.get("dialect") == "lite":
        values.setdefault("protocol", "ascii")
    return values


def _check(config: Config, sources: Mapping[str, str]) -> Config:
    """Check what two settings say together."""
    if config.max_item_size > config.memory_limit * MEGABYTE:
        raise ConfigError(
            f"-I: an item of {config.max_item_size} bytes would not fit into -m "
            f"{config.memory_limit} (megabytes)"
        )
    if 0 < config.near_cache < MEGABYTE:
        raise ConfigError(f"--near-cache: must be 0 or at least 1m, not {config.near_cache}")
    if config.dialect == "lite":
        _check_lite(config)
    _check_authentication(config)
    if config.unix_socket and config.listen:
        raise ConfigError("-l: a UNIX socket (-s) disables network support; give one of the two")
    return config


def _check_lite(config: Config) -> None:
    """Refuse what the lite dialect has no words for."""
    wrong = None
    if config.asks_for_password:
        flag = "-S" if config.enable_sasl else "-Y"
        wrong = f"clients cannot authenticate in it; leave out {flag}"
    elif config.udp_port:
        wrong = "it is not spoken over UDP; leave out -U"
    elif config.protocol != "ascii":
        wrong = f"it is a text protocol, and the only one then; leave out -B {config.protocol}"
    if wrong:
        raise ConfigError(f"--dialect lite: {wrong}")


def _check_authentication(config: Config) -> None:
    """Refuse protocols by which clients could not authenticate, as memcached does."""
    protocol = config.protocol
    if config.enable_sasl:
        if protocol == "ascii" or (protocol == "auto" and not config.auth_file):
            raise ConfigError(
                f"-S: SASL is for the binary protocol, not for -B {protocol}"
                + (" (without -Y)" if protocol == "auto" else "")
            )
    elif config.auth_file and protocol != "ascii":
        raise ConfigError(
            f"-Y: authentication in text is for the text protocol, not for -B {protocol}; -S has "
            "that of the binary protocol"
        )
    if config.udp_port and (config.enable_sasl or config.auth_file):
        flag = "-S" if config.enable_sasl else "-Y"
        raise ConfigError(f"{flag}: clients cannot authenticate over UDP; leave out -U")


assert {option.field for option in OPTIONS} == {  # noqa: S101 - the table and the class agree
    item.name for item in fields(Config)
}
