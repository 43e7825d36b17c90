"""Options of the servers and proxies that the load tester starts, each as ``NAME=VALUE``."""

import argparse
import difflib
import functools
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.cluster.topology import Topology
from memlite.config import load
from memlite.config.options import OPTIONS_BY_NAME
from memlite.config.parsers import switch
from memlite.core.errors import ConfigError
from memlite.loadtest import memcached

__all__ = [
    "Given",
    "ProxyLaunch",
    "memcached_flags",
    "proxy_launch",
    "proxy_options",
    "server_flags",
    "server_options",
]

Given = tuple[str, str]
"""The name of an option, without dashes, and the text of its value."""

_OURS: Final = frozenset(
    (
        "advertise", "auth-file", "auth-timeout", "backend", "config", "daemon", "dialect",
        "enable-coredumps", "enable-sasl", "enable-ssl", "join", "listen", "name", "pidfile",
        "port", "protocol", "spare", "udp-port", "unix-mask", "unix-socket", "user",
    )
)  # fmt: skip
"""Options for a server's addresses, storage and access, which the load tester sets itself."""
_OUR_PROXYS: Final = _OURS | {"cluster", "nodes", "topology"}
_IN_TOPOLOGY: Final = (
    *("hash", "hash-tag", "hot-key", "multi-gets", "on-return", "read", "replicas", "write"),
)
_REPEATED: Final = frozenset(("extended", "hot-key"))


@dataclass(frozen=True, slots=True)
class ProxyLaunch:
    """How a proxy is started.

    Attributes:
        topology: the contents of its topology file, except for the nodes.
        flags: its remaining command-line arguments.
        given: all options that the user gave, for the report.
    """

    topology: Topology
    flags: tuple[str, ...]
    given: tuple[str, ...]


def server_options() -> Mapping[str, bool]:
    """Return the options of memlite that users can set, and whether each takes a value."""
    return {
        name: option.metavar is not None
        for name, option in OPTIONS_BY_NAME.items()
        if name not in _OURS
    }


@functools.cache  # studies and experiments call this many times
def proxy_options() -> Mapping[str, bool]:
    """Return the options of a proxy that users can set, and whether each takes a value."""
    # Imported here because it is slow to import.
    from memlite.proxy.options import OPTIONS_OF_A_SERVER

    own = {
        action.option_strings[-1].removeprefix("--"): action.nargs != 0
        for action in _of_a_proxy()._actions  # argparse has no public way to ask
        if action.option_strings and not isinstance(action, argparse._HelpAction)
    }
    shared = {name: OPTIONS_BY_NAME[name].metavar is not None for name in OPTIONS_OF_A_SERVER}
    return {
        name: takes_value
        for name, takes_value in {**shared, **own}.items()
        if name not in _OUR_PROXYS and not name.startswith("node-")
    }


@functools.cache
def _of_a_proxy() -> argparse.ArgumentParser:
    """Return the parser of a proxy's command line."""
    from memlite.proxy.options import command_line

    return command_line()


def server_flags(given: Sequence[Given]) -> list[str]:
    """Return the command-line arguments of a memlite server.

    Raises:
        ConfigError: memlite has no such option, or refuses its value.
    """
    flags = _flags("--server-option", given, server_options(), OPTIONS_BY_NAME)
    try:
        load(flags, {})
    except ConfigError as error:
        raise ConfigError(f"bench: --server-option: {error}") from None
    return flags


def memcached_flags(given: Sequence[Given]) -> list[str]:
    """Return the command-line arguments of memcached, which checks their values itself.

    Raises:
        ConfigError: memcached is not installed, or has no such option.
    """
    # memlite has all of memcached's options, and its parser is more reliable than memcached's help
    # about which of them take a value.
    names = memcached.options()
    known = {name: takes for name, takes in server_options().items() if name in names}
    return _flags("--server-option", given, known, names, "memcached")


def proxy_launch(given: Sequence[Given], nodes: int) -> ProxyLaunch:
    """Return how to start a proxy in front of `nodes` nodes.

    Raises:
        ConfigError: a proxy has no such option, or refuses its value.
    """
    from memlite.proxy.options import read_options

    flags = _flags("--proxy-option", given, proxy_options(), _OUR_PROXYS, "a proxy")
    somewhere = ",".join(f"127.0.0.1:{port}" for port in range(1, nodes + 1))
    try:
        found = read_options(_of_a_proxy(), [f"--nodes={somewhere}", *flags])
    except ConfigError as error:
        text = str(error).removeprefix("proxy: ").removeprefix("--nodes: ")
        raise ConfigError(f"bench: --proxy-option: {text}") from None
    assert found.topology is not None  # noqa: S101 - for the type checker
    others = [
        flag for flag in flags if flag.partition("=")[0].removeprefix("--") not in _IN_TOPOLOGY
    ]
    return ProxyLaunch(found.topology, tuple(others), tuple(flags))


def _flags(
    where: str,
    given: Sequence[Given],
    known: Mapping[str, bool],
    all_names: Container[str],
    whose: str = "memlite",
) -> list[str]:
    names = [name for name, _ in given]
    for name in names:
        if name not in known:
            raise ConfigError(f"bench: {where} {name}: {_why_not(name, known, all_names, whose)}")
        if names.count(name) > 1 and name not in _REPEATED:
            raise ConfigError(f"bench: {where} {name} is given twice")
    return [flag for name, value in given for flag in _flag(where, name, value, known[name])]


def _why_not(
    name: str,
    known: Mapping[str, bool],
    all_names: Container[str],
    whose: str,
) -> str:
    if name in all_names:
        return "the load tester sets this option itself"
    close = difflib.get_close_matches(name, known, 1)
    return f"{whose} has no such option" + (f", did you mean {close[0]}?" if close else "")


def _flag(where: str, name: str, value: str, takes_value: bool) -> Iterator[str]:
    if takes_value:
        yield f"--{name}={value}"
        return
    try:
        wanted = switch(value)
    except ValueError as error:
        raise ConfigError(f"bench: {where} {name}: {error}") from None
    if wanted:
        yield f"--{name}"
