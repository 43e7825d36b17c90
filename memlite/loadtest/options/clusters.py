"""Options of ``bench compare`` about clusters and proxies."""

import argparse

from memlite.core.errors import ConfigError
from memlite.loadtest import option_values as values
from memlite.loadtest.defaults import BACKENDS, COMPARED_PATHS, PROXIED, WITH_PROXY
from memlite.loadtest.options.hosts import add_hosts

__all__ = ["add_cluster", "complete_comparison"]


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the group of options."""
    add = parser.add_argument_group("clusters, instead of single servers").add_argument
    add(
        "--cluster",
        "--servers",
        type=values.checked(values.numbers),
        metavar="LIST",
        help="start and compare clusters with these numbers of nodes: 3, or 1,2,4, or "
        "first:last:step",
    )
    add(
        "--paths",
        type=values.checked(values.paths),
        metavar="LIST",
        help="how requests reach the nodes: proxied, through memlite proxy; direct, from clients "
        "that know the nodes; or asked, from clients that ask the proxy for the nodes when they "
        f"connect (default: {','.join(COMPARED_PATHS)}; with proxy options: {PROXIED})",
    )
    add(
        "--proxies",
        type=values.checked(values.numbers),
        metavar="LIST",
        help="numbers of proxies in front of the nodes; clients are spread over them (default: 1)",
    )
    add(
        "--in-flight",
        type=values.checked(values.positive),
        metavar="NUM",
        help="maximum number of requests in flight from each proxy to the nodes (default: no "
        "limit)",
    )
    add(
        "--proxy-option",
        type=values.checked(values.given),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option for the proxies, such as replicas=2; may be repeated",
    )
    add_hosts(add)


def complete_comparison(options: argparse.Namespace) -> None:
    """Add the defaults that depend on whether clusters are compared.

    Raises:
        ConfigError: there are paths without a cluster.
    """
    if options.in_flight is not None:
        options.proxy_option = [*options.proxy_option, ("in-flight", str(options.in_flight))]
    of_proxies = bool(options.proxies or options.proxy_option)
    for name in ("paths", "proxies", "in_flight", "proxy_option"):
        if getattr(options, name) and not options.cluster:
            flag = name.replace("_", "-")
            if name == "proxy_option":
                flag += f" {options.proxy_option[0][0]}"
            raise ConfigError(f"bench: --{flag} requires --cluster")
    if of_proxies and not set(options.paths or [PROXIED]) & set(WITH_PROXY):
        raise ConfigError("bench: --proxies and proxy options require a proxy: use --paths proxied")
    options.paths = options.paths or ([PROXIED] if of_proxies else list(COMPARED_PATHS))
    options.proxies = options.proxies or [1]
    if options.backends is None:
        options.backends = ["memory"] if options.cluster else list(BACKENDS)
