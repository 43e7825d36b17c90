"""The client libraries of other languages that `try_clients` uses, and how programs are built.

The programs are in ``scripts/clients/<language>``, versions in the file each language has for them.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

CLIENTS = Path(__file__).parent / "clients"
_BUILD_SECONDS = 300


class NotAvailableError(Exception):
    """A program that cannot be built here: the reason."""


@dataclass(frozen=True)
class Command:
    """What starts a program; host and port come behind it."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Library:
    """A client library.

    Attributes:
        name: its name.
        language: that of its program.
        uses: what it can do, and by which protocol: ``plain``, ``password``, ``TLS``.
        pin: the file that has its version, and a pattern that finds it there.
        build: makes its program in a folder.
    """

    name: str
    language: str
    uses: Mapping[str, Sequence[str]]
    pin: tuple[str, str]
    build: "Callable[[Library, Path], Command]"

    @cached_property
    def version(self) -> str:
        """The version that is used, and no other."""
        file, pattern = self.pin
        found = re.search(pattern, (CLIENTS / file).read_text())
        assert found, f"no version of {self.name} in {file}"
        return found[1]


def _need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise NotAvailableError(f"no {program}")


def _fetch(*command: str, cwd: Path) -> None:
    """Run what gets a library; where it cannot be got, its program is left out."""
    code, text = _run(*command, cwd=cwd)
    if code:
        lines = text.strip().splitlines() or [f"exit code {code}"]
        errors = [line for line in lines if re.search(r"error|403|404", line, re.IGNORECASE)]
        reason = (errors or lines)[0]
        raise NotAvailableError(f"{' '.join(command[:3])}: {reason.strip()[:150]}")


def _compile(*command: str, cwd: Path) -> None:
    """Run what makes a program of our source; that has to work."""
    code, text = _run(*command, cwd=cwd)
    if code:
        raise RuntimeError(f"{' '.join(command[:3])}: {text}")


def _run(*command: str, cwd: Path) -> tuple[int, str]:
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def _go(library: Library, folder: Path) -> Command:
    _need("go")
    module = CLIENTS / "go"
    _fetch("go", "mod", "download", cwd=module)
    program = folder / library.name
    _compile("go", "build", "-o", str(program), f"./{library.name}", cwd=module)
    return Command([str(program)])


def _node(library: Library, folder: Path) -> Command:
    _need("node", "npm")
    shutil.copytree(CLIENTS / "node", folder, dirs_exist_ok=True)
    _fetch("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)
    return Command(["node", str(folder / f"{library.name}.js")])


def _java(library: Library, folder: Path) -> Command:
    _need("java", "javac", "mvn")
    source = CLIENTS / "java"
    libraries, classes = folder / "libraries", folder / "classes"
    _fetch(
        "mvn", "--batch-mode", "--quiet", f"--file={source / 'pom.xml'}",
        "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies",
        f"-DoutputDirectory={libraries}",
        cwd=folder,
    )  # fmt: skip
    files = sorted(map(str, source.glob("*.java")))
    _compile("javac", "-d", str(classes), "-cp", f"{libraries}/*", *files, cwd=folder)
    return Command(["java", "-cp", f"{classes}:{libraries}/*", "Checks", library.name])


def _ruby(library: Library, folder: Path) -> Command:
    _need("ruby")
    words = ["ruby", str(CLIENTS / "ruby" / f"{library.name}.rb")]
    show = "require 'dalli'; print Dalli::VERSION"
    if _run("ruby", "-e", show, cwd=folder) == (0, library.version):
        return Command(words)
    _need("gem")
    gem = ["gem", "install", "--no-document", "--install-dir", str(folder), library.name]
    _fetch(*gem, "--version", library.version, cwd=folder)
    return Command(words, {"GEM_PATH": str(folder), "GEM_HOME": str(folder)})


LIBRARIES = [
    Library(
        "gomemcache",
        "Go",
        {"text": ["plain", "password", "TLS"]},
        ("go/go.mod", r"github\.com/bradfitz/gomemcache (\S+)"),
        _go,
    ),
    Library(
        "gomemcached",
        "Go",
        {"binary": ["plain", "password", "TLS"]},
        ("go/go.mod", r"github\.com/couchbase/gomemcached (\S+)"),
        _go,
    ),
    Library(
        "mc",
        "Go",
        {"binary": ["plain", "password"]},
        ("go/go.mod", r"github\.com/memcachier/mc/v3 (\S+)"),
        _go,
    ),
    Library(
        "memjs",
        "Node",
        {"binary": ["plain", "password"]},
        ("node/package-lock.json", r'"node_modules/memjs": {\s+"version": "(.*)"'),
        _node,
    ),
    Library(
        "spymemcached",
        "Java",
        {"text": ["plain"], "binary": ["plain", "password"]},
        ("java/pom.xml", r"<artifactId>spymemcached</artifactId>\s+<version>(.*)</version>"),
        _java,
    ),
    Library(
        "xmemcached",
        "Java",
        {"text": ["plain"], "binary": ["plain", "password"]},
        ("java/pom.xml", r"<artifactId>xmemcached</artifactId>\s+<version>(.*)</version>"),
        _java,
    ),
    Library(
        "dalli",
        "Ruby",
        {"meta": ["plain", "TLS"], "binary": ["plain", "password", "TLS"]},
        ("ruby/Gemfile", r'gem "dalli", "(.*)"'),
        _ruby,
    ),
]
