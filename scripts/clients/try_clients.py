"""Run the programs of `client_libraries` against servers; see ``scripts/clients/try-clients``."""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from client_libraries import LIBRARIES, SUITES, Command, Library, NotAvailableError

from tests.support.certificates import Authority, client_context
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, memcached_path, running

USER, PASSWORD = "web", "correct-horse-battery-staple"
KINDS = ["memlite", "memlite-asyncio", "memlite-near", "memlite-file", "memcached", "proxy"]
_RUN_SECONDS = 120
_OF_NODES = ("stats:",)
"""Checks that a proxy does not pass: it knows no ``curr_items``."""


@dataclass
class Outcome:
    """The results of a library's checks on a server.

    Attributes:
        passed: the number of checks that passed.
        without: checks of features that the library lacks.
        failed: a line for each check that failed.
        note: why no checks were run.
    """

    passed: int = 0
    without: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    note: str = ""

    def __str__(self) -> str:
        if self.note:
            return self.note
        return f"FAILED {len(self.failed)} of {self._all}" if self.failed else f"{self.passed} ok"

    @property
    def _all(self) -> int:
        return self.passed + len(self.failed)


class Laboratory:
    """Starts a server for each run of a program, with the users and certificates it needs."""

    def __init__(self, folder: Path) -> None:
        self._certificate = Authority(folder).issue("server")
        self._users = folder / "users"
        self._users.touch(0o600)
        # In memcached, SASL users may include the host name; mechanisms are listed in a file.
        users = [USER, f"{USER}@{socket.gethostname()}"]
        self._users.write_text("".join(f"{user}:{PASSWORD}\n" for user in users))
        (folder / "memcached.conf").write_text("mech_list: plain\n")
        self._sasl = {
            "MEMCACHED_SASL_PWDB": str(self._users),
            "SASL_CONF_PATH": str(folder),
        }

    @contextlib.contextmanager
    def serving(self, target: str, protocol: str, way: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Run a server; yield its address and the environment for a program that connects."""
        access = {"TRY_PROTOCOL": protocol}
        if target not in KINDS:
            yield target, access
            return
        arguments: list[str] = []
        tls = None
        if way == "TLS":
            arguments = self._certificate.flags
            tls = client_context(self._certificate.ca)
            access["TRY_CA"] = str(self._certificate.ca)
        elif way == "password":
            arguments = ["-S"] if protocol == "binary" else ["-Y", str(self._users)]
            access.update(TRY_USER=USER, TRY_PASSWORD=PASSWORD)
        sasl = self._sasl if "-S" in arguments else {}
        with contextlib.ExitStack() as stack:
            if target == "proxy":
                front = proxy(_nodes(stack), *arguments, environment=sasl, tls=tls)
                access["TRY_BEHIND"] = "proxy"
            else:
                front = running(target, *arguments, environment=sasl, tls=tls)
            server = stack.enter_context(front)
            yield f"127.0.0.1:{server.port}", access


def _nodes(stack: contextlib.ExitStack) -> list[RunningServer]:
    """Start a proxy's nodes: memcached servers if memcached is installed, else memlite."""
    kind = "memlite" if memcached_path() is None else "memcached"
    return [stack.enter_context(running(kind)) for _ in range(3)]


def check(command: Command, address: str, access: dict[str, str]) -> Outcome:
    """Run a program, which prints a line for each check."""
    try:
        done = subprocess.run(
            [*command.words, *address.rsplit(":", 1)],
            env={**os.environ, **command.environment, **access},
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(failed=[f"timed out after {_RUN_SECONDS} s"])
    outcome = Outcome()
    behind_proxy = "TRY_BEHIND" in access
    for line in done.stdout.splitlines():
        result, _, text = line.partition(" ")
        if result == "ok":
            outcome.passed += 1
        elif result == "without":
            outcome.without.append(text)
        elif result == "FAILED" and not (behind_proxy and text.startswith(_OF_NODES)):
            outcome.failed.append(text)
    if not outcome.passed or (done.returncode and not outcome.failed and not behind_proxy):
        outcome.failed.append(f"exit code {done.returncode}: {done.stderr[-1000:]}")
    return outcome


def try_library(
    library: Library, targets: Sequence[str], folder: Path, laboratory: Laboratory
) -> Iterator[tuple[str, str, list[Outcome]]]:
    """Build a library's program and run it in every way; yield protocol, way and outcomes."""
    program = folder / library.name
    program.mkdir()
    try:
        command = library.build(library, program)
    except NotAvailableError as error:
        yield "–", "–", [Outcome(note=f"skipped: {error}")]
        return
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        yield "–", "–", [Outcome(failed=[f"build failed: {error}"])]
        return
    for protocol, ways in library.uses.items():
        for way in ways:
            yield (
                protocol,
                way,
                [run(command, target, protocol, way, laboratory) for target in targets],
            )


def run(command: Command, target: str, protocol: str, way: str, laboratory: Laboratory) -> Outcome:
    """Run a program against a server of its own."""
    if target not in KINDS and way != "plain":
        return Outcome(note="–")
    try:
        with laboratory.serving(target, protocol, way) as (address, access):
            return check(command, address, access)
    except RuntimeError as error:  # an old memcached, built without a feature
        last = str(error).strip().splitlines()[-1]
        if target.startswith("memlite"):
            return Outcome(failed=[last])
        return Outcome(note=f"no server: {last[:60]}")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def main() -> int:
    """Run the checks that the command line selects; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="try-clients", description=__doc__)
    parser.add_argument(
        "--on", action="append", metavar="SERVER", help=f"{', '.join(KINDS)}, or HOST:PORT"
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="a language or a library")
    options = parser.parse_args()
    targets = options.on or ["memlite"]
    for target in targets:
        if target not in KINDS and ":" not in target:
            parser.error(f"{target} is neither a server to start nor HOST:PORT")
    only = {name.lower() for name in options.only or []}
    libraries = [
        library
        for library in [*SUITES, *LIBRARIES]
        if not only or {library.name, library.language.lower()} & only
    ]
    if not libraries:
        parser.error(f"unknown library or language: {', '.join(only)}")
    rows = [["language", "library", "version", "protocol", "how", *targets]]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="memlite-clients-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # a memcached that drops root privileges reads its users there
        laboratory = Laboratory(folder)
        for library in libraries:
            for protocol, way, outcomes in try_library(library, targets, folder, laboratory):
                cells = [library.language, library.name, library.version, protocol, way]
                results = [str(outcome) for outcome in outcomes]
                print(*cells, *results, flush=True)
                without = outcomes[0].without
                if without:
                    print(f"    not supported by it: {', '.join(without)}")
                for target, outcome in zip(targets, outcomes, strict=False):
                    for line in outcome.failed:
                        print(f"    {target}: {line}", flush=True)
                    failed += len(outcome.failed)
                rows.append(cells + results + [""] * (len(targets) - len(results)))
    print(f"\n{table(rows)}\n\n{f'{failed} FAILED' if failed else 'nothing failed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
