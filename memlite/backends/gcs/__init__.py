"""Google Cloud Storage as a backend.

Its dependencies come with ``pip install 'memlite-cache[gcs]'``.
"""

__all__ = ["GcsBackend", "Options", "make", "parse_options"]

from memlite.backends.gcs.backend import GcsBackend, make
from memlite.backends.gcs.options import Options, parse_options
