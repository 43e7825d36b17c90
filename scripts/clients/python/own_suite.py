"""Run a library's own tests against a server: own_suite.py LIBRARY FOLDER HOST PORT.

FOLDER contains the unpacked source distribution. With TRY_BEHIND=proxy in the environment, the
server is a proxy. Prints a line for each test; exits with 1 if one failed.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

_USUAL_PORT = "11211"
# The distribution of python-memcached lacks this file of its tests.
_UTILS = """\
import contextlib, io
def captured_stderr():
    return contextlib.redirect_stderr(io.StringIO())
"""


@dataclass(frozen=True)
class Suite:
    """A library's tests.

    Attributes:
        arguments: returns pytest's arguments, given the host and the port.
        prepare: changes files in the folder, given the port.
        of_nodes: tests that a proxy cannot pass.
    """

    arguments: Callable[[str, str], Sequence[str]]
    prepare: Callable[[Path, str], None] = lambda _folder, _port: None
    of_nodes: Sequence[str] = ()


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    if old not in text:
        raise SystemExit(f"{file.name} does not contain {old}")
    file.write_text(text.replace(old, new))


def _prepare_python_memcached(folder: Path, port: str) -> None:
    tests = folder / "tests"
    _replace(tests / "test_memcache.py", _USUAL_PORT, port)
    (tests / "__init__.py").touch()
    (tests / "utils.py").write_text(_UTILS)


def _prepare_pylibmc(folder: Path, port: str) -> None:
    tests = folder / "tests"
    _replace(tests / "__init__.py", _USUAL_PORT, port)
    other = f"autoconf.elasticache('127.0.0.1:{port}')"
    _replace(tests / "test_autoconf.py", "autoconf.elasticache()", other)
    os.environ["MEMCACHED_PORT"] = port


SUITES = {
    "pymemcache": Suite(
        lambda host, port: [
            "pymemcache/test/test_integration.py", f"--server={host}", f"--port={port}"
        ],
        # It asks for `stats cachedump` and sets a memory limit.
        of_nodes=["test_misc"],
    ),
    "pylibmc": Suite(
        lambda _host, _port: ["tests"],
        _prepare_pylibmc,
        # They store an item under the key with which a proxy lists its nodes.
        of_nodes=["test_autoconf", "test_autoconf_only_cname", "test_no_autoconf"],
    ),
    "python-memcached": Suite(lambda _host, _port: ["tests"], _prepare_python_memcached),
}  # fmt: skip


class _Lines:
    """Prints results as `try_clients` reads them."""

    def __init__(self, left_out: Sequence[str]) -> None:
        self._left_out = left_out

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if item.name.partition("[")[0] in self._left_out:
                item.add_marker(pytest.mark.skip(reason="concerns a node"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("::")[2]
        if report.failed:
            error = str(report.longrepr).strip().splitlines()[-1]
            print(f"FAILED {name} ({report.when}): {error}", flush=True)
        elif report.when == "call" and report.passed:
            print(f"ok {name}", flush=True)


def main() -> int:
    """Run the tests that the command line names."""
    name, source, host, port = sys.argv[1:]
    suite = SUITES[name]
    behind = os.environ.get("TRY_BEHIND") == "proxy"
    lines = _Lines(suite.of_nodes if behind else ())
    options = ["-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:asyncio", "-o", "addopts="]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "source"
        shutil.copytree(source, folder)
        suite.prepare(folder, port)
        os.chdir(folder)
        return int(pytest.main([*options, *suite.arguments(host, port)], plugins=[lines]))


if __name__ == "__main__":
    sys.exit(main())
