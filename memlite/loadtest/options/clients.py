"""Options about the clients that generate load."""

import argparse

from memlite.loadtest import option_values as values

__all__ = ["add_clients"]


def add_clients(parser: argparse.ArgumentParser) -> None:
    """Add the group of options."""
    clients_group = parser.add_argument_group("clients")
    add = clients_group.add_argument
    add(
        "--client",
        choices=("text", "pymemcache"),
        default="text",
        help="the built-in client, or pymemcache clients in threads (default: text)",
    )
    add(
        "--dialect",
        choices=("memcached", "lite"),
        default="memcached",
        help="protocol of running servers: memcached's, or the classroom's lite dialect, which "
        "has only get and set (default: memcached)",
    )
    add(
        "--workers",
        type=values.checked(values.positive),
        metavar="NUM",
        help="worker processes that run the clients (default: half the cores)",
    )
    add(
        "--timeout",
        type=values.checked(values.duration),
        default=5.0,
        metavar="TIME",
        help="longest wait for a reply (default: 5s)",
    )
    add("--verify", action="store_true", help="check that every value read is one that was stored")
    add(
        "--seed",
        type=values.checked(int),
        default=1,
        metavar="NUM",
        help="random seed (default: %(default)s)",
    )
