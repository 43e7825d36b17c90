"""The version of this distribution, and the one that clients are told."""

from typing import Final

__all__ = ["MEMCACHED_VERSION", "SERVER_VERSION", "__version__"]

__version__ = "0.1.0"

MEMCACHED_VERSION: Final = "1.6.45"
"""The version of memcached whose behaviour memlite has."""

# Clients decide by memcached's version what a server can do, and take only the first word for it;
# libmemcached refuses 0. Some discovery clients accept one word more, but not two.
SERVER_VERSION: Final = f"{MEMCACHED_VERSION} memlite/{__version__}"
"""What the command ``version`` answers, and ``stats`` shows as ``version``."""
