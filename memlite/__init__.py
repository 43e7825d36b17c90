"""memlite: a memcached-compatible cache service with pluggable storage."""

from typing import TYPE_CHECKING

from memlite.core.version import __version__

if TYPE_CHECKING:
    from memlite.server.embedding import serve

__all__ = ["__version__", "serve"]


def __getattr__(name: str) -> object:
    # On demand: importing the package must not import the server.
    if name == "serve":
        from memlite.server.embedding import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
