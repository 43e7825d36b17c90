"""Valkey and Redis as a backend: one server, or a cluster.

Its dependencies come with ``pip install 'memlite-cache[valkey]'``.
"""

__all__ = ["Options", "ValkeyBackend", "make", "parse_options"]

from memlite.backends.valkey.backend import ValkeyBackend, make
from memlite.backends.valkey.options import Options, parse_options
