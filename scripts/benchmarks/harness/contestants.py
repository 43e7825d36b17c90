"""The servers under comparison: memcached, and one or more builds of memlite."""

import argparse
import contextlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from harness.processes import HOST, BenchError, Running, program, running

__all__ = [
    "CHECKOUT",
    "Contestant",
    "add_options",
    "contestants",
    "describe_cpu",
    "in_turn",
    "introduce",
]

_T = TypeVar("_T")

CHECKOUT: Final = Path(__file__).resolve().parents[3]

# Prints which memlite a Python interpreter would run.
_ASK: Final = """
import importlib.metadata, os, platform, memlite
try:
    loop = "uvloop " + importlib.metadata.version("uvloop")
except importlib.metadata.PackageNotFoundError:
    loop = "no uvloop"
where = os.path.dirname(os.path.dirname(memlite.__file__))
print(f"Python {platform.python_version()}, {loop}; in {where}")
"""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server program to measure.

    Attributes:
        name: the name in tables.
        command: the start of the command line.
        environment: the environment variables.
        description: the version, and the interpreter if any.
        interpreter: the Python that runs it; None for memcached.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    description: str
    interpreter: str | None = None

    def arguments(self, megabytes: int, *further: str) -> list[str]:
        """Return the command line without the port, with ``-m`` set to `megabytes`."""
        return [*self.command, "-l", HOST, "-U", "0", "-m", str(megabytes), *further]

    def running(
        self, core: int, megabytes: int, *further: str
    ) -> contextlib.AbstractContextManager[Running]:
        """Run it on `core` for the duration of a block."""
        command = self.arguments(megabytes, *further)
        return running(self.name, command, core, self.environment)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the servers."""
    group = parser.add_argument_group(
        "servers",
        "PYTHON runs the memlite installed for it, or else the one in this checkout;"
        " PYTHON:CHECKOUT runs the one in that folder.",
    )
    group.add_argument(
        "--python",
        metavar="PYTHON[:CHECKOUT]",
        help="the interpreter for memlite (default: this Python and this checkout)",
    )
    group.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="NAME=PYTHON[:CHECKOUT]",
        help="another memlite to compare (repeatable)",
    )
    group.add_argument(
        "--memcached", "--peer", metavar="PROGRAM", help="(default: the installed memcached)"
    )


def contestants(options: argparse.Namespace) -> list[Contestant]:
    """Return memcached, memlite and its variants, in this order.

    Raises:
        BenchError: one of them cannot run, or two have the same name.
    """
    found = [_memcached(options.memcached)]
    found.append(_memlite("memlite", options.python or f"{sys.executable}:{CHECKOUT}"))
    for text in options.variant:
        name, equals, where = text.partition("=")
        if not equals or not re.fullmatch(r"[\w.-]{1,10}", name):
            raise BenchError(
                f"--variant {text}: must be NAME=PYTHON, with a name of at most 10 letters"
            )
        if any(name == one.name for one in found):
            raise BenchError(f"--variant {text}: the name {name} is already used")
        found.append(_memlite(name, where))
    return found


def _memcached(path: str | None) -> Contestant:
    command = [program(path or "memcached", "memlite is compared with memcached"), "-t", "1"]
    said = subprocess.run([command[0], "-V"], capture_output=True, text=True).stdout.strip()
    if os.geteuid() == 0:
        command += ["-u", "root"]  # required when run as root
    return Contestant("memcached", tuple(command), os.environ, said)


def _memlite(name: str, where: str) -> Contestant:
    python, _, checkout = where.partition(":")
    interpreter = program(python, f"it is the interpreter for {name}")
    # Keep the current folder off the path: an installed memlite must win.
    safe = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    safe["PYTHONSAFEPATH"] = "1"
    if checkout and not Path(checkout, "memlite").is_dir():
        raise BenchError(f"{name}: there is no memlite in {checkout}")
    candidates = [checkout] if checkout else ["", str(CHECKOUT)]
    for folder in candidates:
        environment = safe | ({"PYTHONPATH": str(Path(folder).resolve())} if folder else {})
        runs = _ask([interpreter, "-c", _ASK], environment)
        if runs.returncode == 0 and runs.stdout:
            break
    else:
        raise BenchError(f"{name}: {where} cannot run memlite: {_last_line(runs.stderr)}")
    command = (interpreter, "-m", "memlite")
    version = _ask([*command, "--version"], environment)
    if version.returncode:
        raise BenchError(f"{name}: {where} cannot run memlite: {_last_line(version.stderr)}")
    described = ", ".join(version.stdout.split("\n")).strip(", ")
    return Contestant(
        name, command, environment, f"{described}; {runs.stdout.strip()}", interpreter
    )


def _ask(
    command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1]


def in_turn(parties: Sequence[_T], turn: int) -> list[_T]:
    """Return the parties in the order for a round, rotating which one comes first.

    Without rotation, a trend in the machine's speed would favour one of them.

    Args:
        parties: the servers to measure.
        turn: the number of the round, from 1.
    """
    first = (turn - 1) % len(parties)
    return [*parties[first:], *parties[:first]]


def describe_cpu() -> str:
    """Return the processor's name and the number of cores."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    return f"{cpu}, {os.cpu_count()} cores"


def introduce(parties: Sequence[Contestant]) -> None:
    """Print the conditions of the figures: the processor and the servers."""
    print(describe_cpu())
    for one in parties:
        print(f"{one.name}: {one.description}", flush=True)
