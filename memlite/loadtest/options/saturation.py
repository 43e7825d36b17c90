"""Options of the search for the load at which a target saturates."""

import argparse

from memlite.loadtest import option_values as values

__all__ = ["add_saturation"]


def add_saturation(parser: argparse.ArgumentParser) -> None:
    """Add the group of options."""
    knee = parser.add_argument_group("saturation")
    add = knee.add_argument
    add(
        "--find-knee",
        action="store_true",
        help="increase the number of clients (with --rate: the rate) from the first value until "
        "throughput stops growing",
    )
    add(
        "--slo",
        type=values.checked(values.duration),
        metavar="TIME",
        help="also stop when p99 exceeds TIME",
    )
    add("--most", type=values.checked(values.number), metavar="NUM", help="highest load to try "
        "(default: 1024 clients, 1000000/s)")  # fmt: skip
