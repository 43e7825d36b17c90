"""The options of ``compare`` that apply to all runs of a study."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from memlite.core.errors import ConfigError
from memlite.loadtest.options import compare_options, parse

__all__ = ["parse_common"]

_SET_BY_THE_STUDY: Final = frozenset(
    ("backends", "cluster", "in-flight", "mix", "paths", "proxies", "proxy-option", "workload")
)
# Options that its models or its multi-gets do not support, or that are for running servers.
_OF_NO_USE: Final = frozenset(
    (
        "arrivals", "client", "dialect", "find-knee", "machines", "most", "multiget", "no-report",
        "operations", "password-file", "pipeline", "prices", "rate", "slo", "target", "think-time",
        "title", "tls", "tls-ca-cert", "tls-cert", "tls-key", "tls-skip-verify", "trace", "user",
    )
)  # fmt: skip


def parse_common(backend: str, others: Sequence[str]) -> argparse.Namespace:
    """Parse the options, and refuse those that a study sets itself or cannot use.

    Args:
        backend: the backend of the nodes.
        others: the options.

    Raises:
        ConfigError: an option is unknown or invalid, or a study does not take it.
    """
    for name in _names(others):
        if name in _SET_BY_THE_STUDY:
            hint = ": use --backend" if name == "backends" else ""
            raise ConfigError(f"bench: study: --{name} is set by the study itself{hint}")
        if name in _OF_NO_USE:
            raise ConfigError(
                f"bench: study: --{name} cannot be used in a study, which only measures servers "
                "that it starts, in a closed loop; use 'memlite bench compare' or 'run'"
            )
    found = parse(["compare", f"--backends={backend}", *others])
    if found is None:
        raise ConfigError("bench: --help must come before other options")
    if len(found.value_size or [0]) > 1:
        raise ConfigError("bench: study: --value-size: only one size is allowed")
    return found


def _names(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the names of the options, without dashes, each in its first spelling."""
    known = compare_options()
    for text in arguments:
        name = text.removeprefix("--").partition("=")[0]
        if text.startswith("--") and name in known:
            yield known[name].name
