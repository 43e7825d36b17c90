"""Processes pinned to cores, their use of processor time and memory, and the load generator."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

__all__ = [
    "HOST",
    "BenchError",
    "CpuSeconds",
    "Running",
    "children",
    "compile_loadgen",
    "cpu_seconds",
    "exit_code",
    "free_port",
    "listens",
    "load",
    "pinned",
    "probing",
    "program",
    "progress",
    "real_time",
    "resident",
    "running",
    "running_at",
    "thread_nanoseconds",
    "two_cores",
]

HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
_LOADGEN: Final = Path(__file__).parent.parent / "loadgen.c"
_PROBES: Final = 50
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class BenchError(Exception):
    """The benchmark cannot continue; the message is for the user."""


class Running(NamedTuple):
    """A server that accepts connections.

    Attributes:
        pid: the process ID.
        port: the port on `HOST`.
    """

    pid: int
    port: int


@dataclass(frozen=True, slots=True)
class CpuSeconds:
    """Processor time of a process, with all its threads.

    Attributes:
        user: seconds in the program itself.
        system: seconds in the kernel on its behalf.
    """

    user: float
    system: float

    @property
    def total(self) -> float:
        """The sum of both."""
        return self.user + self.system

    def since(self, earlier: "CpuSeconds") -> "CpuSeconds":
        """Return the difference from an earlier reading."""
        return CpuSeconds(self.user - earlier.user, self.system - earlier.system)


def two_cores() -> tuple[int, int]:
    """Return a core for the server and one for the load.

    Raises:
        BenchError: there is only one.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("needs two cores, one for the server and one for the load")
    return cores[0], cores[1]


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Run on `core` inside the block; processes started there, and their threads, stay on it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def real_time() -> Iterator[bool]:
    """Give processes started inside the block priority over everything else on their core.

    Uses a real-time policy, because niceness has no effect between sessions if the kernel groups
    processes by session. The kernel stops a real-time process that never sleeps for up to 50 ms of
    every second, so pause before that happens.

    Yields whether this is permitted, which requires root.
    """
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, *before)


@contextlib.contextmanager
def running(
    name: str, command: Sequence[str], core: int, environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Run a server on `core` for the duration of the block.

    Args:
        name: the name in errors.
        command: the command line without ``-p <port>``.
        core: the core to run on.
        environment: environment variables; by default, those of this process.

    Raises:
        BenchError: it does not start.
    """
    port = free_port()
    with running_at(name, [*command, "-p", str(port)], core, port, environment) as server:
        yield server


@contextlib.contextmanager
def running_at(
    name: str,
    command: Sequence[str],
    core: int,
    port: int,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """Run a server whose command line says that it listens on `port`; see `running`."""
    with tempfile.TemporaryFile() as output:
        with pinned(core):
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
            )
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    output.seek(0)
                    said = output.read().decode(errors="replace").strip()
                    raise BenchError(f"{name} did not start: {said or 'no output'}")
                time.sleep(0.01)
            yield Running(process.pid, port)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


def listens(port: int) -> bool:
    """Whether a server accepts connections on the port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def cpu_seconds(pid: int) -> CpuSeconds:
    """Return the processor time that a process has used.

    The sum is in nanoseconds, or to a tick (usually 10 ms) if a thread has ended; the kernel may
    only have sampled how it divides into user and system time.
    """
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    # The second field, the name, may contain spaces; utime and stime are fields 14 and 15.
    fields = stat.rpartition(")")[2].split()
    tick = 1 / os.sysconf("SC_CLK_TCK")
    user, system = int(fields[11]) * tick, int(fields[12]) * tick
    exact = sum(thread_nanoseconds(pid).values()) / 1e9
    scale = exact / (user + system) if exact > user + system - tick and user + system else 1
    return CpuSeconds(user * scale, system * scale)


def thread_nanoseconds(pid: int) -> dict[int, int]:
    """Return the nanoseconds that each thread of a process has run, by thread ID."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found[int(task.name)] = int((task / "schedstat").read_text("ascii").split()[0])
    return found


def resident(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def children(pid: int) -> list[int]:
    """Return the running child processes of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text("ascii").split())
    return found


def program(name: str, advice: str) -> str:
    """Return the path of a program.

    Raises:
        BenchError: it is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise BenchError(f"{name} is not installed; {advice}")
    return path


def compile_loadgen(directory: Path) -> Path:
    """Compile the load generator into `directory`; return the program's path.

    Raises:
        BenchError: there is no compiler, or it fails.
    """
    compiler = program("cc", "the load generator is written in C")
    target = directory / "loadgen"
    result = subprocess.run(
        [compiler, "-O2", "-o", str(target), str(_LOADGEN), "-lm"], capture_output=True, text=True
    )
    if result.returncode:
        raise BenchError(f"{_LOADGEN.name} does not compile:\n{result.stderr.strip()}")
    return target


def load(
    loadgen: Path, port: int, core: int, arguments: Sequence[str], *, background: bool = False
) -> dict[str, Any]:
    """Run the load generator on `core`; return its output.

    Args:
        loadgen: the compiled program.
        port: the server's port.
        core: the core to run on.
        arguments: the load generator's options.
        background: whether to run at the lowest priority.

    Raises:
        BenchError: it failed, most likely over a wrong reply.
    """
    command = [*(["nice", "-n", "19"] if background else []), str(loadgen), f"--port={port}"]
    with pinned(core):
        # run() kills the child on any exception, including Ctrl-C.
        result = subprocess.run([*command, *arguments], capture_output=True, text=True)
    return _printed(result.returncode, result.stdout, result.stderr)


@contextlib.contextmanager
def probing(loadgen: Path, port: int, core: int, rate: float) -> Iterator[dict[str, Any]]:
    """Request one key from a server, `rate` times a second, while the block runs.

    The probe has several connections. On a single one, requests would queue as soon as a reply
    takes longer than the interval between two requests, and might never catch up.

    Yields a dict that is filled afterwards with the load generator's output: latencies, measured
    from when a request was due.

    Raises:
        BenchError: the load generator failed.
    """
    printed: dict[str, Any] = {}
    command = [str(loadgen), f"--port={port}", f"--connections={_PROBES}"]
    command += ["--keys=1", "--gets=1", "--sets=0", f"--rate={rate:g}", "--seconds=3600"]
    with pinned(core):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    try:
        yield printed
        process.terminate()
        said, complained = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    printed |= _printed(process.returncode, said, complained)


def _printed(code: int, said: str, complained: str) -> dict[str, Any]:
    if code:
        raise BenchError(complained.strip() or f"loadgen: exit code {code}")
    printed: dict[str, Any] = json.loads(said)
    return printed


def progress(text: str) -> None:
    """Show the current step on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def exit_code(name: str, bench: Callable[[], int]) -> int:
    """Run a script's measurements; return its exit code, or 2 if they fail."""
    signal.signal(signal.SIGTERM, _interrupt)  # so that the servers are stopped as well
    try:
        return bench()
    except BenchError as error:
        progress("")
        sys.stderr.write(f"{name}: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return 130
