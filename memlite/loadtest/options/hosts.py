"""Options about the machines on which clusters are started."""

from collections.abc import Callable, Sequence
from typing import Final

from memlite.loadtest import option_values as values

__all__ = ["add_hosts", "without_access"]

# Options for reaching other machines, which do not affect the measurements.
_ACCESS: Final = ("--ssh", "--remote-memlite", "--ports")


def add_hosts(add: Callable[..., object]) -> None:
    """Add the options by a group's ``add_argument``."""
    add(
        "--hosts",
        type=values.checked(values.hosts),
        metavar="LIST",
        help="start nodes and proxies on these machines, in turn, over ssh: names or addresses, "
        "such as 10.0.0.2,admin@10.0.0.3 (default: this machine)",
    )
    add(
        "--ssh",
        type=values.checked(values.command),
        metavar="COMMAND",
        help="ssh command with its options, such as 'ssh -i key' (default: ssh)",
    )
    add(
        "--remote-memlite",
        type=values.checked(values.command),
        metavar="COMMAND",
        help="command that runs memlite on these machines, which must be the same version and "
        "build (default: memlite)",
    )
    add(
        "--ports",
        type=values.checked(values.ports),
        metavar="FIRST:LAST",
        help="ports to listen on there, such as those that a firewall allows (default: any)",
    )


def without_access(arguments: Sequence[str]) -> list[str]:
    """Return the options without those for reaching other machines, which may change.

    Args:
        arguments: options of ``compare``.
    """
    found, skip = [], False
    for text in arguments:
        name, equals, _ = text.partition("=")
        if not skip and name not in _ACCESS:
            found.append(text)
        skip = not skip and name in _ACCESS and not equals
    return found
