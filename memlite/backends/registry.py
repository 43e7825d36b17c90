"""Backends by URL: the built-in schemes, and the schemes that other packages register.

A package registers a scheme with an entry point in the group ``memlite.backends``: the name is the
scheme, the value a `BackendFactory`. A backend is imported only when its scheme is used.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from memlite.backends.base import Backend
from memlite.core.clock import Clock
from memlite.core.errors import ConfigError, StartError
from memlite.core.package_name import not_installed
from memlite.memory.item import Item

if TYPE_CHECKING:
    from memlite.backends.agreement import SharedEpoch  # for servers of several processes

__all__ = ["REMOTE", "BackendFactory", "BackendUrl", "Context", "make_backend", "parse_url"]

GROUP = "memlite.backends"

_BUCKET = ("gs", "gcs")
_VALKEY = ("valkey", "valkeys", "redis", "rediss")
REMOTE: Final = frozenset((*_BUCKET, *_VALKEY))
"""Schemes of stores that several processes of one server may use; see `Context.epoch`."""
_BUILT_IN = {
    "memory": "memlite.backends.memory:make",
    "file": "memlite.backends.jsonfile:make",
    **dict.fromkeys(_BUCKET, "memlite.backends.gcs:make"),
    **dict.fromkeys(_VALKEY, "memlite.backends.valkey:make"),
}
# The extra that installs what a built-in scheme imports.
_EXTRA = {**dict.fromkeys(_BUCKET, "gcs"), **dict.fromkeys(_VALKEY, "valkey")}


@dataclass(frozen=True, slots=True)
class BackendUrl:
    """A store's URL, ``scheme://host/path?name=value``, in parts.

    Attributes:
        text: the complete URL.
        scheme: in lower case.
        host: the part before the path, unchanged.
        path: with its leading slash, percent-decoded.
        options: from the query string.
    """

    text: str
    scheme: str
    host: str = ""
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def only(self, *names: str) -> Mapping[str, str]:
        """Return the options.

        Raises:
            ConfigError: one is not among `names`.
        """
        for name in self.options:
            if name not in names:
                known = f"valid options are {', '.join(names)}" if names else "it has no options"
                raise ConfigError(f"--backend: {self.scheme}: unknown option {name!r}; {known}")
        return self.options


@dataclass(frozen=True, slots=True)
class Context:
    """The server's settings that a backend may need.

    Attributes:
        memory_limit: bytes that items kept in memory may take (``-m``).
        evict: whether to evict items beyond that, rather than refuse new ones (``-M``).
        item_size: the largest item (``-I``), in bytes.
        durability: ``always``, ``everysec`` or ``none``.
        eviction: the eviction policy, a name in `memlite.memory.eviction.POLICIES`.
        clock: determines when items expire.
        on_evict: for backends with an `ItemTable`, its callback of the same name.
        epoch: the epoch shared with other processes of this server; None if there are none.
    """

    memory_limit: int = 64 * 1024 * 1024
    evict: bool = True
    item_size: int = 1024 * 1024
    durability: str = "always"
    eviction: str = "s3fifo"
    clock: Clock = field(default_factory=Clock)
    on_evict: Callable[[list[tuple[bytes, Item, int]]], None] = lambda gone: None
    epoch: "SharedEpoch | None" = None


BackendFactory = Callable[[BackendUrl, Context], Backend]
"""Makes a backend that is not open yet; raises `ConfigError` for a URL it cannot use."""


def parse_url(text: str) -> BackendUrl:
    """Parse the URL of a store.

    Raises:
        ConfigError: it is not a valid URL.
    """
    try:
        parts = _split(text)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ConfigError(f"--backend: not a URL: {text!r} ({error})") from None
    if not parts.scheme or "://" not in text:
        raise ConfigError(
            f"--backend: not a URL: {text!r}; use for example memory://, "
            "file:///var/lib/memlite/cache.json, gs://bucket/prefix or valkey://host:6379/prefix"
        )
    options = dict(pairs)
    if len(options) < len(pairs):
        raise ConfigError(f"--backend: duplicate option in {text!r}")
    if parts.fragment:
        raise ConfigError(f"--backend: a '#' must be written %23 in {text!r}")
    return BackendUrl(text, parts.scheme, parts.netloc, unquote(parts.path), options)


def _split(text: str) -> SplitResult:
    """Split a URL. Newer versions of urlsplit refuse several hosts if one is an IPv6 address."""
    scheme, mark, rest = text.partition("://")
    hosts = rest[: min((rest.index(end) for end in "/?#" if end in rest), default=len(rest))]
    if not mark or "," not in hosts:
        return urlsplit(text)
    for host in hosts.rpartition("@")[2].split(","):
        urlsplit(f"//{host}")  # raises ValueError for an invalid host
    return urlsplit(f"{scheme}://{rest[len(hosts) :]}")._replace(netloc=hosts)


def make_backend(url: BackendUrl, context: Context) -> Backend:
    """Make a backend for a URL; it is not open yet.

    Raises:
        ConfigError: the scheme is unknown, or its factory rejects the URL.
        StartError: the package that provides the scheme cannot be imported.
    """
    return _factory(url.scheme)(url, context)


def _factory(scheme: str) -> BackendFactory:
    if scheme in _BUILT_IN:
        module, _, name = _BUILT_IN[scheme].partition(":")
        try:
            return cast("BackendFactory", getattr(importlib.import_module(module), name))
        except ModuleNotFoundError as error:
            if scheme not in _EXTRA:
                raise
            what = not_installed(error, _EXTRA[scheme])
            raise StartError(f"--backend: {scheme}://: {what}") from None
    from importlib import metadata  # takes twenty times as long to import as this module

    plugins = {point.name: point for point in metadata.entry_points(group=GROUP)}
    point = plugins.get(scheme)
    if point is None:
        known = ", ".join(f"{name}://" for name in sorted({*_BUILT_IN, *plugins}))
        raise ConfigError(f"--backend: unknown scheme {scheme!r}; known schemes are {known}")
    try:
        return cast("BackendFactory", point.load())
    except Exception as error:  # noqa: BLE001 - whatever another package's import may raise
        raise StartError(
            f"--backend: {scheme}:// of {point.value} cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from None
