"""Start a server or a proxy to measure: on this machine, or by the launcher on another one.

Does not import the packages that only the load tester needs: machines that run only servers may
lack them.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memlite.config.keywords import flags
from memlite.config.parsers import MEGABYTE
from memlite.core.errors import StartError
from memlite.loadtest import memcached
from memlite.testing import process

__all__ = ["FILE", "LOOPBACK", "MEMCACHED", "Launch", "last_line", "launched"]

MEMCACHED: Final = "memcached"
FILE: Final = "file"
LOOPBACK: Final = "127.0.0.1"
_PROXY: Final = (sys.executable, "-P", "-m", "memlite", "proxy")
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 30.0
_SLAB_CHUNK: Final = MEGABYTE // 2
_start = process.start_process
"""Starts a process. Tests replace it with something faster."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A server or a proxy to start.

    Attributes:
        name: its name in messages.
        arguments: command-line arguments, besides those derived from the attributes below.
        backend: for a server, a URL, `FILE` for a file in its own folder, or `MEMCACHED` to run
            memcached instead of memlite; empty for a proxy.
        topology: for a proxy, the text of its topology file.
        trace: for a proxy, the path of its trace file; a relative path is relative to the proxy's
            own folder; empty for no trace.
        connections: maximum number of connections.
        item_size: maximum size of an item, in bytes.
        memory: for a server, its memory limit in megabytes.
    """

    name: str
    arguments: tuple[str, ...] = ()
    backend: str = ""
    topology: str = ""
    trace: str = ""
    connections: int = 1024
    item_size: int = MEGABYTE
    memory: int = 1024


@contextlib.contextmanager
def launched(
    launch: Launch, folder: Path, host: str = LOOPBACK, port: int = 0
) -> Iterator[tuple[process.ServerProcess, Path]]:
    """Run a server or a proxy while the context lasts.

    Args:
        launch: the server or proxy to start.
        folder: the parent directory of its temporary files.
        host: the address to listen on.
        port: the port; 0 for any free one.

    Yields:
        The process, and the folder of its files, which is removed on exit.

    Raises:
        ConfigError: memcached is not installed.
        StartError: the server or proxy does not start.
    """
    is_memcached = launch.backend == MEMCACHED
    with contextlib.ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix=".")))
        running = process.server(
            *flags(_of_server(launch, own)),
            *launch.arguments,
            *_of_proxy(launch, own),
            host=host,
            port=port,
            command=_command(launch),
            conn_limit=launch.connections,
            max_item_size=_item_size(launch.item_size) if is_memcached else launch.item_size,
            environment=os.environ,
            start=_start,
            start_timeout=_START_SECONDS,
            # memcached takes up to two seconds to stop its threads, and has nothing to save.
            stop_timeout=0 if is_memcached else _STOP_SECONDS,
        )
        try:
            started = stack.enter_context(running)
        except process.ServerStartError as error:
            raise StartError(f"bench: {launch.name}: {last_line(error.output)}") from None
        yield started, own


def _command(launch: Launch) -> list[str] | None:
    if launch.backend == MEMCACHED:
        return memcached.command()
    return None if launch.backend else list(_PROXY)


def _of_server(launch: Launch, own: Path) -> dict[str, object]:
    if not launch.backend:
        return {}
    settings: dict[str, object] = {"memory_limit": launch.memory}
    if launch.backend == FILE:
        settings["backend"] = f"file://{own.resolve() / 'cache.json'}"
    elif launch.backend != MEMCACHED:
        settings["backend"] = launch.backend
    return settings


def _of_proxy(launch: Launch, own: Path) -> Iterator[str]:
    if launch.topology:
        file = own / "topology.toml"
        file.write_text(launch.topology, encoding="utf-8")
        yield f"--topology={file}"
    if launch.trace:
        yield f"--trace={own.resolve() / launch.trace}"


def _item_size(size: int) -> int:
    """Round up to an item size that memcached accepts: a multiple of its slab_chunk_max."""
    return -size // _SLAB_CHUNK * -_SLAB_CHUNK


def last_line(output: str) -> str:
    """Return the last line that a server wrote, without the program name."""
    messages = [line for line in output.split("\n") if line.strip()]
    return messages[-1].removeprefix("memlite: ") if messages else "no output"
