"""Another machine as a place for servers and proxies."""

import base64
import contextlib
import dataclasses
import shlex
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from memlite.core.build import describe_build
from memlite.core.errors import StartError
from memlite.core.version import __version__
from memlite.loadtest.launching import Launch
from memlite.loadtest.places import Started
from memlite.loadtest.remote.connection import Connection
from memlite.loadtest.remote.launcher import PATIENCE
from memlite.loadtest.remote.traces import add_trace
from memlite.loadtest.results import Placed
from memlite.loadtest.usage import Counted, Counters, MachineTimes, RemoteProcess

__all__ = ["Access", "RemoteMachine", "reached"]

# Options for ssh. The user's own command may override them: ssh uses the first value of each.
_OPTIONS: Final = (
    "-T", "-oBatchMode=yes", "-oConnectTimeout=10", "-oServerAliveInterval=10",
    "-oServerAliveCountMax=3",
)  # fmt: skip
_TRACE: Final = "trace.csv"
_COMPARISONS: Final = 5


@dataclass(frozen=True, slots=True)
class _StartedThere:
    connection: Connection
    address: tuple[str, int]
    process: Counted
    disk: str

    def check(self) -> None:
        assert isinstance(self.process, RemoteProcess)  # noqa: S101 - for the type checker
        self.connection.ask("check", self.process.pid)


@dataclass(frozen=True, slots=True)
class Access:
    """How other machines are reached.

    Attributes:
        ssh: the command, with its options, that runs a program on another machine.
        memlite: the command that runs memlite there.
        ports: the first and the last port to listen on; None for any.
        patience: seconds without a heartbeat after which all processes there end.
    """

    ssh: tuple[str, ...] = ("ssh",)
    memlite: tuple[str, ...] = ("memlite",)
    ports: tuple[int, int] | None = None
    patience: float = PATIENCE

    def command(self, host: str) -> list[str]:
        """Return the command line that runs the launcher on a machine."""
        launcher = shlex.join([*self.memlite, "bench", "launcher"])
        return [*self.ssh, *_OPTIONS, "--", host, launcher]


class RemoteMachine:
    """A machine that servers and proxies are started on through ssh; a `Place`.

    Args:
        host: the host as ssh takes it: a name or an address, preceded by a user and @ if necessary.
        access: how it is reached.
    """

    def __init__(self, host: str, access: Access) -> None:
        self.host = host
        self._access = access
        self._users = 0
        self._entering = threading.Lock()  # servers are started in threads
        self._connection = self._new_connection()
        self._connecting = False
        self._address = ""
        self._ahead = 0.0
        self._placed: Placed | None = None

    def __enter__(self) -> Self:
        with self._entering:
            if not self._users:
                self.connect()
                try:
                    self._begin()
                except BaseException:
                    self._leave()
                    raise
            self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        with self._entering:
            self._users -= 1
            if not self._users:
                self._leave()

    def connect(self) -> None:
        """Begin to connect, unless already begun; entering the context waits for the connection.

        Raises:
            StartError: there is no ssh program.
        """
        if not self._connecting:
            self._connection.open()
            self._connecting = True

    def disconnect(self) -> None:
        """End a connection whose context was never entered, if there is one."""
        if self._connecting and not self._users:
            self._leave()

    def _leave(self) -> None:
        self._connection.close()
        self._connection, self._connecting = self._new_connection(), False

    def _new_connection(self) -> Connection:
        access = self._access
        return Connection(self.host, access.command(self.host), access.patience)

    def _begin(self) -> None:
        found = self._connection.greeting()
        there = f"{found['memlite']} ({found.get('build', 'unknown')})"
        here = f"{__version__} ({describe_build()})"  # as `memlite --version` says
        if there != here:
            raise StartError(
                f"bench: {self.host}: memlite is version {there} there and {here} here; install "
                "the same version and build"
            )
        machine = found["machine"]
        self._placed = Placed(self.host, int(machine["cores"]), str(machine["cpu"]))
        # The address at which ssh reached the machine. Its name may resolve to another address
        # there.
        self._address = found["address"] or self.host.rpartition("@")[2]
        self._ahead = self._compare_clocks()

    def _compare_clocks(self) -> float:
        """Return how many seconds the other machine's clock is ahead of the local one."""
        settings = {
            "patience": self._access.patience,
            "host": self._address,
            "ports": self._access.ports,
        }
        found: list[tuple[float, float]] = []
        for _ in range(_COMPARISONS):
            before = time.time()
            there = self._connection.ask("begin", settings)
            after = time.time()
            found.append((after - before, there - (before + after) / 2))
        return min(found)[1]  # the difference measured in the shortest round trip

    @property
    def placed(self) -> Placed | None:
        """The machine, for the report; valid inside the context."""
        return self._placed

    @contextlib.contextmanager
    def start(self, launch: Launch, folder: Path) -> Iterator[Started]:
        """Run a server or a proxy there; fetch its trace at the end.

        Args:
            launch: what to start; its trace is a file on this machine.
            folder: not used: the process's files are in the directory that ssh starts in.

        Raises:
            StartError: it does not start.
        """
        of = dataclasses.asdict(replace(launch, trace=_TRACE if launch.trace else ""))
        found = self._connection.ask("start", of)
        pid, address = found["pid"], (self._address, found["port"])
        try:
            yield _StartedThere(self._connection, address, RemoteProcess(self, pid), found["disk"])
        except BaseException:
            with contextlib.suppress(StartError):  # the earlier error says more
                self._finish(pid, launch.trace)
            raise
        self._finish(pid, launch.trace)

    def _finish(self, pid: int, trace: str) -> None:
        if trace:
            self._connection.ask("stop", pid)
            self._fetch_trace(pid, Path(trace))
        with contextlib.suppress(StartError):  # if it is lost, the process has ended
            self._connection.ask("end", pid)

    def _fetch_trace(self, pid: int, to: Path) -> None:
        """Append a proxy's trace to a local file, with times by the local clock."""
        content = b""
        while piece := self._connection.ask(
            "read", {"pid": pid, "file": _TRACE, "offset": len(content)}
        ):
            content += base64.b64decode(piece)
        try:
            add_trace(content.decode("utf-8", "backslashreplace"), to, self._ahead)
        except OSError as error:
            raise StartError(f"bench: {to}: {error.strerror}") from None

    def counters(self, pids: Sequence[int]) -> tuple[MachineTimes, Mapping[int, Counters]]:
        """Return the resources used by the machine and some processes so far.

        Raises:
            StartError: it does not answer.
        """
        found = self._connection.ask("counters", list(pids))
        return MachineTimes(*found["machine"]), {
            int(pid): _counters(*one) for pid, one in found["processes"].items() if one is not None
        }


def _counters(seconds: float, memory: int, threads: Mapping[str, float]) -> Counters:
    return Counters(seconds, memory, {int(number): time for number, time in threads.items()})


@contextlib.contextmanager
def reached(machines: Sequence[RemoteMachine]) -> Iterator[None]:
    """Keep connections to all machines while the context lasts; they connect at the same time.

    Raises:
        StartError: a machine cannot be reached, or does not have this version of memlite.
    """
    with contextlib.ExitStack() as stack:
        try:
            for one in machines:
                one.connect()
            for one in machines:
                stack.enter_context(one)
        except BaseException:
            for one in machines:
                one.disconnect()
            raise
        yield
