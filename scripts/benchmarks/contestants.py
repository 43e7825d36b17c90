"""The servers that are measured beside one another: memcached, and one memlite or several."""

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

from benchmarks.processes import HOST, BenchError, Running, program, running

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

CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent

# What a Python says of the memlite that it would run.
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
        name: what tables call it.
        command: the start of its command line.
        environment: its variables.
        description: its version, and what runs it.
        interpreter: the Python that runs it; none for memcached.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    description: str
    interpreter: str | None = None

    def arguments(self, megabytes: int, *further: str) -> list[str]:
        """Return its command line, but for the port, with a budget of so many megabytes."""
        return [*self.command, "-l", HOST, "-U", "0", "-m", str(megabytes), *further]

    def running(
        self, core: int, megabytes: int, *further: str
    ) -> contextlib.AbstractContextManager[Running]:
        """Run it on `core` for the length of a block."""
        command = self.arguments(megabytes, *further)
        return running(self.name, command, core, self.environment)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say who is measured."""
    group = parser.add_argument_group(
        "servers",
        "PYTHON runs the memlite installed for it, else that of this checkout;"
        " PYTHON:CHECKOUT the one in that folder.",
    )
    group.add_argument(
        "--python",
        metavar="PYTHON[:CHECKOUT]",
        help="what runs memlite (default: this Python and this checkout)",
    )
    group.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="NAME=PYTHON[:CHECKOUT]",
        help="another memlite beside it (repeatable)",
    )
    group.add_argument(
        "--memcached", metavar="PROGRAM", help="(default: the memcached that is installed)"
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
                f"--variant {text}: NAME=PYTHON is expected, the name of at most 10 letters"
            )
        if any(name == one.name for one in found):
            raise BenchError(f"--variant {text}: there is a {name} already")
        found.append(_memlite(name, where))
    return found


def _memcached(path: str | None) -> Contestant:
    command = [program(path or "memcached", "it is what memlite is compared with"), "-t", "1"]
    said = subprocess.run([command[0], "-V"], capture_output=True, text=True).stdout.strip()
    if os.geteuid() == 0:
        command += ["-u", "root"]  # it refuses to guess
    return Contestant("memcached", tuple(command), os.environ, f"{said} -t 1")


def _memlite(name: str, where: str) -> Contestant:
    python, _, checkout = where.partition(":")
    interpreter = program(python, f"{name} was to run on it")
    # Nothing of the current folder, in whose place an installed memlite is meant.
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
        raise BenchError(f"{name}: {where} does not run memlite: {_last_line(runs.stderr)}")
    command = (interpreter, "-m", "memlite")
    version = _ask([*command, "--version"], environment)
    if version.returncode:
        raise BenchError(f"{name}: {where} does not run memlite: {_last_line(version.stderr)}")
    described = ", ".join(version.stdout.split("\n")).strip(", ")
    return Contestant(
        name, command, environment, f"{described}; {runs.stdout.strip()}", interpreter
    )


def _ask(
    command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def in_turn(parties: Sequence[_T], turn: int) -> list[_T]:
    """Return the parties of a round, numbered from 1, each time another first.

    Else a trend of the machine would favour one.
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
    """Print what the figures depend on: the processor, and who is measured."""
    print(describe_cpu())
    for one in parties:
        print(f"{one.name}: {one.description}", flush=True)
