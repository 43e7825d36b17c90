"""The version of this distribution, and the one that clients are told."""

from typing import Final

__all__ = ["MEMCACHED_VERSION", "SERVER_VERSION", "__version__"]

__version__ = "0.1.0"

MEMCACHED_VERSION: Final = "1.6.45"
"""The version of memcached whose behaviour memlite has."""

# Clients decide by memcached's version what a server can do, and libmemcached refuses 0. It is a
# single word, because emcache accepts no more.
SERVER_VERSION: Final = f"{MEMCACHED_VERSION}-memlite-{__version__}"
"""What the command ``version`` answers, and ``stats`` shows as ``version``."""
