"""Factors: options of the load tester, of servers or of proxies, with several values."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.config.parsers import switch
from memlite.core.errors import ConfigError
from memlite.loadtest.options import compare_options
from memlite.loadtest.server_options import proxy_options, server_options

__all__ = ["Factor", "Key", "given", "parse_factors"]

Key = tuple[str, str]
"""An option: its owner (``compare``, ``server`` or ``proxy``), and its name."""

_NEVER: Final = frozenset(
    (
        "factor", "find-knee", "help", "machine", "machines", "most", "no-report", "out", "prices",
        "proxy-option", "quiet", "repetitions", "seed", "server-option", "slo", "title",
    )
)  # fmt: skip
"""Options of ``compare`` that apply to the whole experiment, or to none of its runs."""
_IN_FLIGHT: Final[Key] = ("proxy", "in-flight")
_EXAMPLE: Final = "an option with two or more values, such as clients=2,16"


@dataclass(frozen=True, slots=True)
class Factor:
    """An option with several values.

    Attributes:
        name: the option's name, as given.
        levels: the values.
        key: the option.
        takes_value: whether the option takes a value; a switch has the values ``on`` and ``off``.
    """

    name: str
    levels: tuple[str, ...]
    key: Key
    takes_value: bool

    def argument(self, level: int) -> str:
        """Return the argument of ``compare`` that sets a level; empty for a switch that is off."""
        owner, option = self.key
        value = self.levels[level]
        if owner != "compare":
            return f"--{owner}-option={option}={value}"
        if self.takes_value:
            return f"--{option}={value}"
        return f"--{option}" if switch(value) else ""


def parse_factors(texts: Sequence[str], others: Sequence[str]) -> list[Factor]:
    """Parse the values of all ``--factor`` options.

    An option of ``compare`` takes precedence over one of a proxy or a server with that name; the
    prefix ``proxy:`` or ``server:`` selects one of those.

    Args:
        texts: each a name and values: ``clients=2,16``, or, with semicolons between values that
            may contain commas, ``mix=get=1;set=1``.
        others: the options of all runs.

    Raises:
        ConfigError: a name is unknown or ambiguous, a value is invalid, or an option occurs twice.
    """
    split = [_split(text) for text in texts]
    common = given(others)
    with_proxy = any(key == ("compare", "cluster") for key in common) or any(
        name in ("cluster", "servers") for name, _ in split
    )
    factors = [_factor(name, levels, with_proxy=with_proxy) for name, levels in split]
    keys = [one.key for one in factors]
    for one in factors:
        if keys.count(one.key) > 1:
            raise ConfigError(f"bench: --factor {one.name}: two factors have the same name")
        if one.key in common:
            raise ConfigError(f"bench: --{one.name} is a factor and cannot be given as well")
    return factors


def given(arguments: Sequence[str]) -> set[Key]:
    """Return the options that arguments of ``compare`` set."""
    known = compare_options()
    found: set[Key] = set()
    for place, text in enumerate(arguments):
        name, equals, value = text.removeprefix("--").partition("=")
        if not text.startswith("--") or name not in known:
            continue
        if not equals:
            value = arguments[place + 1] if place + 1 < len(arguments) else ""
        if name in ("proxy-option", "server-option"):
            option = value.partition("=")[0].strip().removeprefix("--")
            found.add((name.partition("-")[0], option))
        else:
            found.add(_key(known[name].name))
    return found


def _key(name: str) -> Key:
    # compare has this proxy option as well; both names stand for the same option.
    return _IN_FLIGHT if name == "in-flight" else ("compare", name)


def _split(text: str) -> tuple[str, tuple[str, ...]]:
    name, _, values = text.partition("=")
    name = name.strip().removeprefix("--")
    levels = tuple(part.strip() for part in values.split(";" if ";" in values else ","))
    if not name or len(levels) < 2 or not all(levels) or len(set(levels)) < len(levels):
        raise ConfigError(f"bench: --factor {text}: must be {_EXAMPLE}")
    return name, levels


def _factor(name: str, levels: tuple[str, ...], *, with_proxy: bool) -> Factor:
    if name in _NEVER:
        raise ConfigError(f"bench: --factor: {name} cannot be a factor")
    key, takes_value = _option(name, with_proxy=with_proxy)
    if not takes_value:
        for level in levels:
            try:
                switch(level)
            except ValueError as error:
                raise ConfigError(f"bench: --factor {name}: {error}") from None
    return Factor(name, levels, key, takes_value)


def _option(name: str, *, with_proxy: bool) -> tuple[Key, bool]:
    """Return the option that a name stands for, and whether it takes a value."""
    of_compare = compare_options()
    if name in of_compare:
        option = of_compare[name]
        return _key(option.name), option.takes_value
    owners: Mapping[str, Mapping[str, bool]] = {
        "server": server_options(),
        "proxy": proxy_options(),
    }
    owner, colon, plain = name.partition(":")
    if colon and owner in owners:
        # It may belong to another server, such as memcached; that is checked where the server is
        # known.
        return (owner, plain), owners[owner].get(plain, True)
    having = [one for one, options in owners.items() if name in options]
    if having == ["server", "proxy"]:
        if with_proxy:
            raise ConfigError(
                f"bench: --factor {name}: both servers and proxies have this option: use "
                f"server:{name} or proxy:{name}"
            )
        having = ["server"]
    if not having:
        raise ConfigError(
            f"bench: --factor {name}: {_unknown(name, [of_compare, *owners.values()])}"
        )
    return (having[0], name), owners[having[0]][name]


def _unknown(name: str, all_options: Sequence[Mapping[str, object]]) -> str:
    def names() -> Iterator[str]:
        for options in all_options:
            yield from options

    close = difflib.get_close_matches(name, [one for one in names() if one not in _NEVER], 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"not an option of compare, a proxy or a server{hint}"
