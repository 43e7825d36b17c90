"""The URL of the store that holds a cluster's objects."""

import os

from memlite.cluster.membership.store import Store
from memlite.core.errors import ConfigError

__all__ = ["store_of"]

# The backends that several processes can share.
_SHARED = ("gs", "gcs", "valkey", "valkeys", "redis", "rediss")


def store_of(url: str, flag: str) -> Store:
    """Return the store, which is not open yet.

    Args:
        url: ``gs://bucket/prefix``, ``valkey://host:port/prefix``, or one of
            `memlite.cluster.membership.memcached_url`.
        flag: the option with the URL, for messages.

    Raises:
        ConfigError: there is no such store.
        StartError: it needs a package that is not installed.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme in ("memcached", "memcacheds"):
        from memlite.cluster.membership.memcached_url import memcached_store_of

        return memcached_store_of(scheme, rest, flag, os.environ)
    if separator and scheme in _SHARED:
        return _backend(url, flag)
    raise ConfigError(
        f"{flag}: must be gs://bucket/prefix, valkey://host:port/prefix or "
        f"memcached://host:port/prefix, not {url!r}"
    )


def _backend(url: str, flag: str) -> Store:
    from memlite.backends.registry import Context, make_backend, parse_url
    from memlite.cluster.membership.backend_store import BackendStore

    try:
        return BackendStore(make_backend(parse_url(url), Context()), flag)
    except ConfigError as error:
        raise ConfigError(str(error).replace("--backend", flag, 1)) from None
