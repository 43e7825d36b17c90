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
        help="memory, file, gcs (an emulated bucket), valkey and memcached (those on the PATH), "
        "redis-direct (the former without memlite), or URLs such as gs://bucket/prefix, each "
        "optionally followed by =NAME "
        f"(default: {','.join(BACKENDS)}; memory with --cluster)",
    )
    add(
        "--target",
        action="append",
        default=[],
        metavar="HOST:PORT[=NAME]",
        help="a running server to compare with; may be repeated",
    )
    add(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="directory of the file backend's file, on the disk to be measured (default: --out)",
    )
    add(
        "--gcs-read-latency",
        type=values.checked(values.latency),
        default=READ_LATENCY,
        metavar="DIST",
        help="read latency of the emulated bucket, in the syntax of gcs-emulator; empty for none "
        "(default: %(default)s)",
    )
    add(
        "--gcs-write-latency",
        type=values.checked(values.latency),
        default=WRITE_LATENCY,
        metavar="DIST",
        help="its write latency (default: %(default)s)",
    )
    add(
        "--server-option",
        type=values.checked(values.given),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the servers that are started, or of the nodes, such as near-cache=16m; "
        "may be repeated",
    )
