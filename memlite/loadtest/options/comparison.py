"""Options of ``bench compare`` about single servers."""

import argparse
from pathlib import Path

from memlite.loadtest import option_values as values
from memlite.loadtest.defaults import BACKENDS, READ_LATENCY, WRITE_LATENCY

__all__ = ["add_comparison"]


def add_comparison(parser: argparse.ArgumentParser) -> None:
    """Add the options for what to compare: backends with their options, and running servers."""
    add = parser.add_argument
    add(
        "--backends",
        type=values.listed,
        metavar="LIST",
        help="memory, file, gcs (an emulated bucket), valkey and memcached (found on the PATH), "
        "redis-direct (valkey without memlite), or URLs such as gs://bucket/prefix, each "
        "optionally followed by =NAME "
        f"(default: {','.join(BACKENDS)}; memory with --cluster)",
    )
    add(
        "--target",
        action="append",
        default=[],
        metavar="HOST:PORT[=NAME]",
        help="running server to include in the comparison; may be repeated",
    )
    add(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="directory for the file backend's file, on the disk to measure (default: --out)",
    )
    add(
        "--gcs-read-latency",
        type=values.checked(values.latency),
        default=READ_LATENCY,
        metavar="DIST",
        help="read latency of the emulated bucket, in gcs-emulator's syntax; empty for none "
        "(default: %(default)s)",
    )
    add(
        "--gcs-write-latency",
        type=values.checked(values.latency),
        default=WRITE_LATENCY,
        metavar="DIST",
        help="write latency of the emulated bucket (default: %(default)s)",
    )
    add(
        "--server-option",
        type=values.checked(values.given),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option for the servers or nodes to start, such as near-cache=16m; may be repeated",
    )
