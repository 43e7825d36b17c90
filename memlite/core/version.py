"""The version of this distribution, and the version reported to clients."""

from typing import Final

__all__ = ["MEMCACHED_VERSION", "SERVER_VERSION", "__version__"]

__version__ = "0.1.0"

MEMCACHED_VERSION: Final = "1.6.45"
"""The version of memcached whose behaviour memlite follows."""

# Clients infer a server's features from memcached's version, and libmemcached refuses 0. It is a
# single word, because emcache accepts no more.
SERVER_VERSION: Final = f"{MEMCACHED_VERSION}-memlite-{__version__}"
"""The version in the reply to the command ``version``, and in ``stats`` as ``version``."""
