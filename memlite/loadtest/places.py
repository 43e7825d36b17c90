"""The machines on which measured servers and proxies run: this one, or others."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import psutil

from memlite.core.errors import StartError
from memlite.loadtest.launching import Launch, last_line, launched
from memlite.loadtest.mounts import file_system
from memlite.loadtest.results import Placed
from memlite.loadtest.usage import Counted
from memlite.testing.process import ServerProcess

__all__ = ["HERE", "Place", "Started", "in_turn", "started"]


class Started(Protocol):
    """A server or a proxy that was started."""

    @property
    def address(self) -> tuple[str, int] | str:
        """The address to which clients connect."""

    @property
    def process(self) -> Counted:
        """The process, whose CPU use can be read."""

    @property
    def disk(self) -> str:
        """The type of the file system that contains its files."""

    def check(self) -> None:
        """Check that the server or proxy is still running.

        Raises:
            StartError: the server or proxy has exited.
        """


class Place(Protocol):
    """A machine on which to start servers and proxies; a context manager that connects to it."""

    def __enter__(self) -> Self:
        """Connect to the machine, unless already connected.

        Raises:
            StartError: the machine cannot be reached, or does not have this version of memlite.
        """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop everything that was started there when the last user leaves the context."""

    @property
    def placed(self) -> Placed | None:
        """The machine, for the report; None for this machine. Valid inside the context."""

    def start(self, launch: Launch, folder: Path) -> contextlib.AbstractContextManager[Started]:
        """Return a context in which a server or a proxy runs.

        Args:
            launch: the server or proxy to start.
            folder: the parent directory of temporary files, on this machine.

        Raises:
            ConfigError: memcached is not installed.
            StartError: the server or proxy does not start.
        """


@dataclass(frozen=True, slots=True)
class _StartedHere:
    name: str
    running: ServerProcess
    process: Counted
    disk: str

    @property
    def address(self) -> tuple[str, int] | str:
        return self.running.address

    def check(self) -> None:
        if self.running.process.poll() is not None:
            raise StartError(f"bench: {self.name} has exited: {last_line(self.running.output)}")


class _Here:
    """This machine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def placed(self) -> None:
        return None

    @contextlib.contextmanager
    def start(self, launch: Launch, folder: Path) -> Iterator[Started]:
        with launched(launch, folder) as (running, own):
            process = psutil.Process(running.process.pid)
            mounts = ((one.mountpoint, one.fstype) for one in psutil.disk_partitions(all=True))
            yield _StartedHere(launch.name, running, process, file_system(own, mounts))


HERE: Final[Place] = _Here()
"""This machine."""


@contextlib.contextmanager
def started(place: Place, launch: Launch, folder: Path) -> Iterator[Started]:
    """Connect to a machine, and run a server or a proxy there while the context lasts.

    Args:
        place: the machine.
        launch: the server or proxy to start.
        folder: the parent directory of temporary files, on this machine.

    Raises:
        ConfigError: memcached is not installed.
        StartError: the server or proxy does not start.
    """
    with place, place.start(launch, folder) as running:
        yield running


def in_turn(places: Sequence[Place], nodes: int, proxies: int) -> tuple[list[Place], list[Place]]:
    """Assign a machine to each node and each proxy of a cluster.

    Each process goes to the machine with the fewest so far, nodes first. With enough machines,
    proxies and nodes therefore do not share any.

    Args:
        places: one or more machines.
        nodes: number of nodes.
        proxies: number of proxies.

    Returns:
        The machine of each node, and that of each proxy.
    """
    chosen = [places[number % len(places)] for number in range(nodes + proxies)]
    return chosen[:nodes], chosen[nodes:]
