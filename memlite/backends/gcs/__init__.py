"""Google Cloud Storage as a backend. Needs the packages of ``pip install 'memlite[gcs]'``."""

__all__ = ["GcsBackend", "Options", "make", "parse_options"]

from memlite.backends.gcs.backend import GcsBackend, make
from memlite.backends.gcs.options import Options, parse_options
