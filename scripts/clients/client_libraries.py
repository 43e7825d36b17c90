"""Client libraries for `try_clients`, and how their programs are built.

The programs are in ``scripts/clients/<language>``, with versions in the language's usual file.
The Python programs run the libraries' own tests.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

CLIENTS = Path(__file__).parent
_BUILD_SECONDS = 300


class NotAvailableError(Exception):
    """A program cannot be built on this machine; the text is the reason."""


@dataclass(frozen=True)
class Command:
    """The command line of a program, without the host and port, and its environment."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Library:
    """A client library.

    Attributes:
        name: the library's name.
        language: the language of the program.
        uses: the ways to connect (``plain``, ``password``, ``TLS``), by protocol.
        pin: the file that pins the version, and a pattern that finds it there.
        build: builds the program in a folder.
    """

    name: str
    language: str
    uses: Mapping[str, Sequence[str]]
    pin: tuple[str, str]
    build: "Callable[[Library, Path], Command]"

    @cached_property
    def version(self) -> str:
        """The pinned version."""
        file, pattern = self.pin
        found = re.search(pattern, (CLIENTS / file).read_text())
        assert found, f"no version of {self.name} in {file}"
        return found[1]


def _need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise NotAvailableError(f"no {program}")


def _fetch(*command: str, cwd: Path) -> None:
    """Run a command that downloads a library; if it fails, the library is skipped."""
    code, text = _run(*command, cwd=cwd)
    if code:
        lines = text.strip().splitlines() or [f"exit code {code}"]
        errors = [line for line in lines if re.search(r"error|403|404", line, re.IGNORECASE)]
        reason = (errors or lines)[0]
        raise NotAvailableError(f"{' '.join(command[:3])}: {reason.strip()[:150]}")


def _compile(*command: str, cwd: Path) -> None:
    """Run a command that compiles our program; it must succeed."""
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


def _python(library: Library, folder: Path) -> Command:
    """Download a library's source distribution, which contains its tests."""
    module = {"python-memcached": "memcache"}.get(library.name, library.name)
    if importlib.util.find_spec(module) is None:
        raise NotAvailableError(f"{library.name} is not installed, see .ci/run")
    lock = (CLIENTS / library.pin[0]).read_text()
    locked = re.search(rf"^{library.name}==(?:.*\\\n)*.*\n", lock, re.MULTILINE)
    assert locked, library.name
    wanted = folder / "wanted.txt"
    wanted.write_text(locked[0])
    _fetch(
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--no-binary=:all:", "--require-hashes", f"--requirement={wanted}",
        cwd=folder,
    )  # fmt: skip
    archive = next(folder.glob("*.tar.gz"))
    with tarfile.open(archive) as packed:
        # Python before 3.11.4 has no extraction filters; the archive is pinned by its hash.
        filters: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        packed.extractall(folder, **filters)
    source = folder / archive.name.removesuffix(".tar.gz")
    program = CLIENTS / "python" / "own_suite.py"
    return Command([sys.executable, str(program), library.name, str(source)])


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
"""Libraries of other languages."""

_LOCKS = "../../requirements"
SUITES = [
    Library(
        name,
        "Python",
        {protocols: ["plain"]},
        (f"{_LOCKS}/{lock}.txt", rf"(?m)^{name}==(\S+)"),
        _python,
    )
    for name, protocols, lock in (
        ("pymemcache", "text", "test"),
        ("python-memcached", "text", "test"),
        ("pylibmc", "text, binary", "pylibmc"),
    )
]
"""Libraries whose own tests are run."""
