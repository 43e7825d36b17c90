"""memcached's extended options (``-o key=value,…``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from memlite.config.parsers import ascii_number

__all__ = ["EXTENDED", "ExtendedOption", "ExtendedOptions"]


class ExtendedOption(NamedTuple):
    """One key of ``-o``.

    Attributes:
        help: the help text; empty for keys that only concern memcached.
        low: the least value allowed, or None if the key takes no value.
        high: the largest value allowed.
        optional: whether the value may be left out.
        text: whether the value is arbitrary text and not a number.
        fraction: whether the number may have a decimal point.
    """

    help: str = ""
    low: float | None = None
    high: float = 2**32 - 1
    optional: bool = False
    text: bool = False
    fraction: bool = False


EXTENDED: Mapping[str, ExtendedOption] = {
    "idle_timeout": ExtendedOption("close connections idle for this many seconds; 0: never", 0),
    "maxconns_fast": ExtendedOption("refuse connections over the limit at once (always on)"),
    "lru_crawler": ExtendedOption('enable "lru_crawler" commands (the default)'),
    "no_lru_crawler": ExtendedOption(
        'disable them until "lru_crawler enable"; omit it from "stats"'
    ),
    "no_lru_maintainer": ExtendedOption('omit the LRU maintainer from "stats"; nothing else'),
    "no_modern": ExtendedOption('the same as "no_lru_crawler"; nothing else'),
    "ssl_ca_cert": ExtendedOption(
        "with -Z: certificates of the CAs that sign clients' certificates (a PEM file)",
        text=True,
        low=0,
    ),
    "ssl_chain_cert": ExtendedOption(
        "with -Z: the server's certificate chain (a PEM file)", text=True, low=0
    ),
    "ssl_ciphers": ExtendedOption(
        "with -Z: ciphers of TLS 1.2, in OpenSSL's notation", text=True, low=0
    ),
    "ssl_key": ExtendedOption(
        "with -Z: the private key, unencrypted (a PEM file; default: the one in ssl_chain_cert)",
        text=True,
        low=0,
    ),
    "ssl_keyformat": ExtendedOption("with -Z: format of the key; only 1 (PEM)", low=1, high=1),
    "ssl_min_version": ExtendedOption(
        "with -Z: the lowest TLS version: 0 to 3 for 1.0 to 1.3 (default 2, TLS 1.2)",
        low=0,
        high=3,
    ),
    "ssl_session_cache": ExtendedOption(
        'with -Z: show ssl_new_sessions in "stats"; sessions are resumed either way'
    ),
    "ssl_verify_mode": ExtendedOption(
        "with -Z: client certificates: 0, not requested (the default); 1, verified if presented; "
        "2 and 3, required",
        low=0,
        high=3,
    ),
    "track_sizes": ExtendedOption('enable "stats sizes"'),
    "watcher_logbuf_size": ExtendedOption(
        'kilobytes of output buffered for a connection in "watch" (default 256)',
        1,
        1_048_576,
    ),
    # Accepted and ignored: they tune memcached's hash table, slabs, LRU threads and loggers.
    "drop_privileges": ExtendedOption(),
    "hash_algorithm": ExtendedOption(text=True, low=0),
    "hashpower": ExtendedOption(low=12, high=32),
    "hot_lru_pct": ExtendedOption(low=1, high=80),
    "hot_max_factor": ExtendedOption(low=0, fraction=True),
    "inline_ascii_resp": ExtendedOption(),
    "lru_crawler_sleep": ExtendedOption(low=0, high=1_000_000),
    "lru_crawler_tocrawl": ExtendedOption(low=0),
    "lru_maintainer": ExtendedOption(),
    "modern": ExtendedOption(),
    "no_chunked_items": ExtendedOption(),
    "no_drop_privileges": ExtendedOption(),
    "no_hashexpand": ExtendedOption(),
    "no_inline_ascii_resp": ExtendedOption(),
    "no_maxconns_fast": ExtendedOption(),
    "no_slab_automove": ExtendedOption(),
    "no_slab_reassign": ExtendedOption(),
    "read_buf_mem_limit": ExtendedOption(low=0),
    "relaxed_privileges": ExtendedOption(),
    "resp_obj_mem_limit": ExtendedOption(low=0),
    "slab_automove": ExtendedOption(low=0, high=2, optional=True),
    "slab_automove_freeratio": ExtendedOption(low=0, high=1, fraction=True),
    "slab_automove_ratio": ExtendedOption(low=0, high=1, fraction=True),
    "slab_automove_window": ExtendedOption(low=3, high=1800),
    "slab_chunk_max": ExtendedOption(low=1),
    "slab_reassign": ExtendedOption(),
    "slab_sizes": ExtendedOption(text=True, low=0),
    "ssl_kernel_tls": ExtendedOption(),
    "ssl_wbuf_size": ExtendedOption(low=0),
    "tail_repair_time": ExtendedOption(low=10),
    "temporary_ttl": ExtendedOption(low=0),
    "warm_lru_pct": ExtendedOption(low=1, high=80),
    "warm_max_factor": ExtendedOption(low=0, fraction=True),
    "worker_logbuf_size": ExtendedOption(low=1),
}
"""The keys that memlite accepts, with or without effect."""

# Keys of features that memlite lacks, by prefix; an error, as in `memlite.config.options.REFUSED`.
_REFUSED = {
    "ext_": "external storage",
    "proxy_": "the proxy",
    "sock_cookie_id": "socket cookies",
}


@dataclass(frozen=True, slots=True)
class ExtendedOptions:
    """The extended options that were set.

    Attributes:
        given: the value of each key, as text; empty if the key takes none.
    """

    given: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: "ExtendedOptions") -> "ExtendedOptions":
        return ExtendedOptions({**self.given, **other.given})

    def __str__(self) -> str:
        return ",".join(f"{key}={value}" if value else key for key, value in self.given.items())

    @property
    def idle_timeout(self) -> int:
        """Seconds after which an idle connection is closed; 0 means never."""
        return int(self.given.get("idle_timeout", 0))

    @property
    def ssl_min_version(self) -> int:
        """The lowest TLS version: 0 to 3 for 1.0 to 1.3."""
        return int(self.given.get("ssl_min_version", 2))

    @property
    def ssl_verify_mode(self) -> int:
        """Client certificates: 0, not requested; 1, verified if presented; 2 and 3, required."""
        return int(self.given.get("ssl_verify_mode", 0))

    @property
    def lru_crawler(self) -> bool:
        """Whether ``lru_crawler`` commands are enabled at start; the last such key wins."""
        keys = [key for key in self.given if key in ("lru_crawler", "no_lru_crawler", "no_modern")]
        return not keys or keys[-1] == "lru_crawler"

    @property
    def watcher_logbuf_size(self) -> int:
        """Bytes of output buffered for a watcher."""
        return int(self.given.get("watcher_logbuf_size", 256)) * 1024

    @property
    def track_sizes(self) -> bool:
        """Whether ``stats sizes`` is enabled."""
        return "track_sizes" in self.given

    @classmethod
    def parse(cls, text: str) -> "ExtendedOptions":
        """Parse ``key=value,key,…``.

        Raises:
            ValueError: a key is unknown, or its value is invalid.
        """
        given = {}
        for part in text.split(","):
            key, equals, value = part.strip().partition("=")
            if not key and not equals:
                continue
            option = EXTENDED.get(key)
            if option is None:
                raise ValueError(_unknown(key))
            given[key] = _check(key, option, value)
        return cls(given)


def _unknown(key: str) -> str:
    for prefix, what in _REFUSED.items():
        if key.startswith(prefix):
            return f"{key}: this version of memlite does not support {what}"
    import difflib  # only needed for this error message

    close = difflib.get_close_matches(key, EXTENDED, 1)
    return f"unknown option {key!r}" + (f", did you mean {close[0]!r}?" if close else "")


def _check(key: str, option: ExtendedOption, value: str) -> str:
    if option.low is None:
        if value:
            raise ValueError(f"{key} takes no value, not {value!r}")
        return ""
    if not value:
        if option.optional:
            return ""
        raise ValueError(f"{key} needs a value: {key}=…")
    if option.text:
        return value
    try:
        number = float(ascii_number(value)) if option.fraction else int(ascii_number(value))
    except ValueError:
        kind = "a number" if option.fraction else "a whole number"
        raise ValueError(f"{key} must be {kind}, not {value!r}") from None
    if not option.low <= number <= option.high:
        if option.low == option.high:
            raise ValueError(f"{key} can only be {option.low:g}, not {value}")
        raise ValueError(f"{key} must be between {option.low:g} and {option.high:g}, not {value}")
    return value
