"""Defaults that the help shows, without the packages that measuring needs."""

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
"""Latencies of the emulated bucket: those of small objects in a bucket of the same region."""

BACKENDS = ("memory", "file", "gcs")
"""Those that are compared."""

PROXIED = "proxied"
DIRECT = "direct"
ASKED = "asked"
PATHS = (PROXIED, DIRECT, ASKED)
"""How requests reach the nodes of a cluster."""
COMPARED_PATHS = (PROXIED, DIRECT)
"""Those that are compared unless told otherwise."""
WITH_PROXY = (PROXIED, ASKED)
"""Those for which there is a proxy."""
