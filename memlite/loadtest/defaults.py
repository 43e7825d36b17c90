"""Defaults shown in the help, importable without the packages needed for measuring."""

__all__ = [
    "ASKED",
    "BACKENDS",
    "COMPARED_PATHS",
    "DIRECT",
    "PATHS",
    "PROXIED",
    "READ_LATENCY",
    "WITH_PROXY",
    "WRITE_LATENCY",
]

READ_LATENCY = "lognormal:median=15ms,p99=60ms"
WRITE_LATENCY = "lognormal:median=30ms,p99=120ms"
"""Latencies of the emulated bucket: typical of small objects in a bucket in the same region."""

BACKENDS = ("memory", "file", "gcs")
"""Backends compared by default."""

PROXIED = "proxied"
DIRECT = "direct"
ASKED = "asked"
PATHS = (PROXIED, DIRECT, ASKED)
"""How requests reach the nodes of a cluster."""
COMPARED_PATHS = (PROXIED, DIRECT)
"""Paths compared by default."""
WITH_PROXY = (PROXIED, ASKED)
"""Paths that need a proxy."""
