"""memlite: a memcached-compatible cache service with pluggable storage."""

__all__ = ["__version__"]

__version__ = "0.1.0"
