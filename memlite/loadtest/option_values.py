"""Parsers for option values of ``memlite bench``; they raise ValueError for invalid text."""

import argparse
import contextlib
import re
import shlex
from collections.abc import Callable
from typing import TypeVar

from memlite.loadtest.defaults import PATHS

__all__ = [
    "checked",
    "command",
    "count",
    "duration",
    "given",
    "hosts",
    "latency",
    "listed",
    "machine",
    "mix",
    "number",
    "numbers",
    "paths",
    "ports",
    "positive",
    "positive_duration",
    "rates",
    "share",
    "size",
    "sizes",
    "some",
]

_T = TypeVar("_T")
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0}
_MAX_PORT = 65535
_SIZES = {"": 1, "k": 1024, "m": 1024**2}


def checked(parse_text: Callable[[str], _T]) -> Callable[[str], _T]:
    """Return a parser for argparse that turns the given parser's ValueError into a message."""

    def parse_one(text: str) -> _T:
        try:
            return parse_text(text)
        except ValueError as error:
            message = str(error)
            if "literal" in message or "convert" in message:
                message = f"not a number: {text!r}"
            raise argparse.ArgumentTypeError(message) from None

    return parse_one


def listed(text: str) -> list[str]:
    """Parse comma-separated words."""
    return [part.strip() for part in text.split(",") if part.strip()]


def some(text: str) -> list[str]:
    """Parse one or more comma-separated words."""
    parts = listed(text)
    if not parts:
        raise ValueError("must not be empty")
    return parts


def hosts(text: str) -> list[str]:
    """Parse machines as ssh does: names or addresses, optionally preceded by a user and @."""
    found = some(text)
    for host in found:
        if host.startswith("-") or " " in host:
            raise ValueError(f"not a machine: {host!r}")
        if found.count(host) > 1:
            raise ValueError(f"{host} is given twice")
    return found


def command(text: str) -> list[str]:
    """Parse a command line as a shell does."""
    words = shlex.split(text)
    if not words:
        raise ValueError("must not be empty")
    return words


def ports(text: str) -> tuple[int, int]:
    """Parse ``FIRST:LAST``."""
    first, colon, last = text.partition(":")
    found = positive(first), positive(last) if colon else positive(first)
    if not found[0] <= found[1] <= _MAX_PORT:
        raise ValueError(f"not ports: {text!r}")
    return found


def machine(text: str) -> tuple[str, int]:
    """Parse ``NAME`` or ``NAME:NUM``."""
    name, colon, count = text.partition(":")
    if not name:
        raise ValueError(f"not NAME or NAME:NUM: {text!r}")
    return name, positive(count) if colon else 1


def given(text: str) -> tuple[str, str]:
    """Parse an option of a server or a proxy: ``NAME=VALUE``, or the name of a switch."""
    name, equals, value = (part.strip() for part in text.partition("="))
    name = name.removeprefix("--")
    if not name:
        raise ValueError(f"not NAME=VALUE: {text!r}")
    return name, value if equals else "on"


def paths(text: str) -> list[str]:
    """Parse the paths that requests take to the nodes."""
    paths = list(dict.fromkeys(some(text)))
    for path in paths:
        if path not in PATHS:
            raise ValueError(f"{path!r} is not one of {', '.join(PATHS)}")
    return paths


def latency(text: str) -> str:
    """Check the latency of the emulated bucket, if the emulator is installed."""
    if text:
        with contextlib.suppress(ModuleNotFoundError):
            from memlite.testing.gcs_emulator.latency import (
                parse_latency,  # takes a tenth of a second
            )

            parse_latency(text)
    return text


def positive(text: str) -> int:
    """Parse a number of at least 1."""
    number = count(text)
    if number < 1:
        raise ValueError("must be 1 or more")
    return number


def count(text: str) -> int:
    """Parse a number such as 1000, 10k or 2m."""
    found = re.fullmatch(r"(\d+)([km]?)", text.strip().lower(), re.ASCII)
    if found is None:
        raise ValueError(f"not a number: {text!r}")
    return int(found[1]) * {"": 1, "k": 1000, "m": 1_000_000}[found[2]]


def number(text: str) -> float:
    """Parse a number such as 10k."""
    return float(count(text))


def numbers(text: str) -> list[int]:
    """Parse numbers and ranges: ``1,10`` or ``first:last:step``."""
    numbers: list[int] = []
    for part in listed(text):
        first, *rest = part.split(":")
        if not rest:
            numbers.append(positive(first))
            continue
        if len(rest) > 2:
            raise ValueError(f"not first:last:step: {part!r}")
        step = positive(rest[1]) if len(rest) == 2 else 1
        start, last = positive(first), positive(rest[0])
        if last < start:
            raise ValueError(f"{last} is less than {start}")
        numbers += range(start, last + 1, step)
    if not numbers:
        raise ValueError("empty list")
    return list(dict.fromkeys(numbers))


def rates(text: str) -> list[float]:
    """Parse rates in operations per second."""
    return [float(positive(part)) for part in some(text)]


def sizes(text: str) -> list[int]:
    """Parse sizes in bytes such as ``100,1k``."""
    sizes = []
    for part in some(text):
        found = re.fullmatch(r"(\d+)([km]?)", part.lower(), re.ASCII)
        if found is None:
            raise ValueError(f"not a size: {part!r}")
        sizes.append(int(found[1]) * _SIZES[found[2]])
    return sizes


def share(text: str) -> float:
    """Parse a share such as 0.9 or 90%."""
    share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 <= share <= 1:
        raise ValueError(f"not a share from 0 to 1: {text!r}")
    return share


def duration(text: str) -> float:
    """Parse a duration such as 2, 1.5s, 250ms or 2m; returns seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|m|)", text.strip(), re.ASCII)
    if found is None:
        raise ValueError(f"not a duration such as 250ms or 2s: {text!r}")
    return float(found[1]) * _TIMES[found[2]]


def positive_duration(text: str) -> float:
    """Parse a duration greater than 0; returns seconds."""
    seconds = duration(text)
    if not seconds:
        raise ValueError("must be more than 0")
    return seconds


def size(text: str) -> int:
    """Parse a single size greater than 0."""
    size, *others = sizes(text)
    if others or not size:
        raise ValueError(f"not a size: {text!r}")
    return size


def mix(text: str) -> dict[str, float]:
    """Parse ``OPERATION=SHARE,…``."""
    mix = {}
    for part in listed(text):
        name, equals, share = part.partition("=")
        if not equals:
            raise ValueError(f"not OPERATION=SHARE: {part!r}")
        mix[name] = float(share)
    return mix
