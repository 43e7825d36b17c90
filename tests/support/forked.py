"""memlite in a process forked from one that has already imported it.

Starting Python and importing memlite takes most of the processor time of a short test. Here
multiprocessing's fork server does so once for each process that runs tests. The command line, the
environment and the files are the same as in a normal start; tests of startup itself start a
process normally.
"""

import contextlib
import functools
import importlib
import multiprocessing
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import resource_tracker
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, BinaryIO

from memlite.__main__ import main
from memlite.testing.process import start_process

__all__ = ["COMMAND", "ForkedProcess", "fork_process", "run_memlite"]

COMMAND = [sys.executable, "-P", "-m", "memlite"]
"""The command that starts this memlite."""

# Modules that servers, proxies and short commands import, some of them only when needed. Modules
# that derive further constants from those of memlite.cluster.membership.lease are left out.
_PACKAGES = ["memlite.engine", "memlite.protocol", "memlite.proxy", "memlite.server"]
_WITHOUT = "memlite.server.http"  # few servers have it, and aiohttp is large
_PRELOADED = [
    "memlite.cli.main",
    "memlite.cli.proxy",
    "memlite.cli.serve",
    "memlite.shell.command",
    "memlite.top.command",
    "memlite.backends.jsonfile.backend",
    "memlite.backends.gcs.backend",
    "memlite.backends.memory",
    "memlite.backends.nearcache",
    "memlite.backends.writeback",
    "memlite.cluster.membership.memcached_store",
    "memlite.cluster.membership.memcached_url",
    "memlite.cluster.membership.node",
    "memlite.cluster.membership.url",
]
_LAST = "tests.support.preloaded"
_LEASE = "MEMLITE_TEST_LEASE_SECONDS"


def fork_process(
    line: Sequence[str], output: BinaryIO, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process as `start_process` does; fork it if it runs this memlite."""
    if list(line[: len(COMMAND)]) == COMMAND and _is_alike(environment):
        with Path(os.devnull).open("rb") as nothing:
            return ForkedProcess(line, (nothing, output, output), environment)
    return start_process(line, output, environment)


def _is_alike(environment: Mapping[str, str]) -> bool:
    """Return whether an interpreter would behave the same with these variables.

    The interpreter and the C library read their variables at startup, long before a fork.
    """
    names = {
        name
        for name in {*environment, *os.environ} - {"PYTHONPATH"}
        if name.startswith(("PYTHON", "MALLOC", "LD_"))
    }
    path = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    return {*path} <= {*sys.path} and all(
        environment.get(name) == os.environ.get(name) for name in names
    )


@functools.cache
def _fork_server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    found = [
        module.name
        for package in map(importlib.import_module, _PACKAGES)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.startswith(_WITHOUT)
    ]
    context.set_forkserver_preload([*_PRELOADED, *found, __name__, _LAST])
    return context


class ForkedProcess(subprocess.Popen[bytes]):
    """A forked memlite, with the methods of a started process.

    Args:
        line: its command line, from the interpreter on.
        files: its standard input, output and error.
        environment: all of its variables.
    """

    def __init__(
        self,
        line: Sequence[str | bytes],
        files: tuple[BinaryIO, BinaryIO, BinaryIO],
        environment: Mapping[str, str],
    ) -> None:
        self.args = line
        self.returncode: int | None = None
        self.stdin = self.stdout = self.stderr = None
        descriptors = [_Descriptor(file.fileno()) for file in files]
        self._process: Any = _fork_server().Process(
            target=_run,
            args=(descriptors, [*map(os.fsdecode, line[len(COMMAND) :])], dict(environment)),
            daemon=True,
        )
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        assert self.returncode is not None
        return self.returncode


class _Descriptor:
    """A descriptor that is passed to the new process and unpickled as its number there."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self._number),)


def _received(duplicate: Any) -> int:
    return int(duplicate.detach())


def _run(descriptors: Sequence[int], arguments: list[str], environment: dict[str, str]) -> None:
    """Run memlite in the forked process."""
    os.setsid()  # so that Ctrl-C does not reach it
    for target, source in enumerate(descriptors):
        os.dup2(source, target)
    os.closerange(3, 1 << 16)
    # From Python 3.14 on, every fork closes this descriptor, which may by then be another file's.
    resource_tracker._resource_tracker._fd = None  # type: ignore[attr-defined]
    sys.stdin = os.fdopen(0, closefd=False)  # the fork server has closed its own
    lease = os.environ.get(_LEASE)
    os.environ.clear()
    os.environ.update(environment)
    if os.environ.get(_LEASE) != lease:
        _read_lease_again()
    if os.environ.get("MEMLITE_NO_EXTENSIONS"):
        _forget_extensions()
    sys.argv = ["memlite", *arguments]
    sys.exit(main())


def _read_lease_again() -> None:
    """Replace the lease constants from the fork server's environment by those of this one."""
    lease = sys.modules["memlite.cluster.membership.lease"]
    before = {name: getattr(lease, name) for name in lease.__all__ if name.isupper()}
    importlib.reload(lease)
    for module in [module for name, module in sys.modules.items() if name.startswith("memlite.")]:
        for name, value in before.items():
            if getattr(module, name, None) is value:
                setattr(module, name, getattr(lease, name))


def _forget_extensions() -> None:
    """Disable the C extensions, which the fork server imported in another environment."""
    sys.modules["memlite.server.execution.runner"].NATIVE = None  # type: ignore[attr-defined]


def run_memlite(
    *arguments: str | bytes,
    lines: bytes = b"",
    timeout: float = 60,
    environment: Mapping[str, str] = os.environ,
) -> subprocess.CompletedProcess[bytes]:
    """Run a memlite command to completion, like `subprocess.run` with captured output."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        given, output, errors = files
        given.write(lines)
        given.seek(0)
        process = ForkedProcess([*COMMAND, *arguments], (given, output, errors), environment)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(process.args, code, output.read(), errors.read())
