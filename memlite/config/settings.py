"""The values a server runs with, and where each of them came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from memlite.config.extended import ExtendedOptions
from memlite.config.parsers import MEGABYTE, nanoseconds

__all__ = ["Config", "Settings"]


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a server; `memlite.config.OPTIONS` documents each of them."""

    port: int = 11211
    udp_port: int = 0
    unix_socket: str | None = None
    unix_mask: int = 0o700
    listen: tuple[str, ...] = ()
    backend: str = "memory://"
    durability: str = "always"
    join: str | None = None
    name: str | None = None
    advertise: str | None = None
    spare: bool = False
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
    threads: int = 1
    memory_file: str | None = None
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
    slow_log: str = "0"
    http: str | None = None
    http_token_file: str | None = None
    http_hosts: tuple[str, ...] = ()
    http_keys: bool = False
    http_debug: bool = False
    http_metric_names: str = "memlite"
    otlp: str | None = None
    trace_sample: str | None = None
    extended: ExtendedOptions = field(default_factory=ExtendedOptions)

    @property
    def asks_for_password(self) -> bool:
        """Whether clients have to authenticate."""
        return self.enable_sasl or self.auth_file is not None

    @property
    def slow_nanoseconds(self) -> int:
        """The duration from which a command counts as slow; 0 to disable the slow log."""
        return nanoseconds(self.slow_log)


class Settings(NamedTuple):
    """A configuration together with the source of each value.

    Attributes:
        config: the values.
        sources: the source of each option, by the option's name: ``default``, ``file PATH``,
            ``environment NAME`` or ``flag -x``. ``extended`` merges all of its sources and lists
            them, separated by commas.
        actions: those of ``help``, ``version``, ``license`` and ``print-config`` that were
            requested.
    """

    config: Config
    sources: Mapping[str, str]
    actions: frozenset[str] = frozenset()
