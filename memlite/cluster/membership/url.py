"""The URL of the store that holds a cluster's objects."""

from typing import Final

from memlite.client import parse_address
from memlite.cluster.membership.store import Store
from memlite.core.errors import ConfigError

__all__ = ["store_of"]

_LONGEST_PREFIX: Final = 100


def store_of(url: str, flag: str) -> Store:
    """Return the store, which is not open yet.

    Args:
        url: ``gs://bucket/prefix`` or ``memcached://host:port/prefix``.
        flag: the option it was given to, for messages.

    Raises:
        ConfigError: there is no such store.
        StartError: it needs a package that is not installed.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("gs", "gcs", "memcached"):
        raise ConfigError(
            f"{flag}: must be gs://bucket/prefix or memcached://host:port/prefix, not {url!r}"
        )
    return _memcached(rest, url, flag) if scheme == "memcached" else _bucket(url, flag)


def _memcached(rest: str, url: str, flag: str) -> Store:
    from memlite.cluster.membership.memcached_store import MemcachedStore

    place, _, prefix = rest.partition("/")
    try:
        address = parse_address(place)
    except ConfigError as error:
        raise ConfigError(f"{flag}: {error}") from None
    prefix = prefix.strip("/") or "cluster"
    wrong = any(character <= " " or character == "\x7f" for character in prefix)
    if wrong or len(prefix.encode()) > _LONGEST_PREFIX:
        raise ConfigError(
            f"{flag}: a prefix has at most {_LONGEST_PREFIX} bytes and no spaces: {url!r}"
        )
    return MemcachedStore(address, prefix + "/")


def _bucket(url: str, flag: str) -> Store:
    from memlite.backends.registry import Context, make_backend, parse_url
    from memlite.cluster.membership.backend_store import BackendStore

    try:
        return BackendStore(make_backend(parse_url(url), Context()))
    except ConfigError as error:
        raise ConfigError(str(error).replace("--backend", flag, 1)) from None
