"""The JSON file backend in the test's process, without a server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from memlite.backends import Record
from memlite.backends.jsonfile import FileBackend
from memlite.backends.registry import Context
from memlite.core.errors import StartError

State = dict[bytes, tuple[bytes, int, float, int]]
"""The value, flags, expires and cas unique of each key."""


@contextlib.asynccontextmanager
async def opened(path: Path, *, kill: bool = False, **options: Any) -> AsyncIterator[FileBackend]:
    """Yield the opened backend; with `kill`, leave the files as a killed process would.

    Args:
        path: the path of the snapshot.
        kill: do not write a snapshot at the end.
        options: `compact_from`, or arguments of `Context`.
    """
    how = {name: options.pop(name) for name in ("compact_from",) if name in options}
    backend = FileBackend(path, Context(**options), **how)
    await backend.open()
    try:
        yield backend
    finally:
        await (leave(backend) if kill else backend.close())


async def leave(backend: FileBackend) -> None:
    """Release the files without changing them."""
    backend._closing = True
    if backend._compaction is not None:
        await asyncio.wait([backend._compaction])
    with contextlib.suppress(OSError):
        await backend._journal.close()
    backend._lock.release()


async def put(backend: FileBackend, key: bytes, value: bytes, **how: Any) -> None:
    await backend.put(Record(key, value, **how))


async def settled(backend: FileBackend) -> None:
    """Wait until no compaction is running."""
    if backend._compaction is not None:
        await asyncio.wait([backend._compaction], timeout=60)
    assert backend._compaction is None


def state(backend: FileBackend) -> State:
    """Return the items that the backend serves."""
    now = backend._clock.now()
    return {
        key: (item.value, item.flags, round(item.expires, 3), item.version)
        for key, item in backend.table.scan()
        if backend.peek(key) is not None and not 0 < item.expires <= now
    }


async def reopened(path: Path, **options: Any) -> State:
    """Return the items that a server finds when it starts after a crash."""
    async with opened(path, kill=True, **options) as backend:
        return state(backend)


def read(path: Path, **options: Any) -> State:
    """Return the items that a server started on the files would serve.

    Raises:
        StartError: the server would refuse to start.
    """

    async def body() -> State:
        async with opened(path, kill=True, **options) as backend:
            return state(backend)

    return asyncio.run(body())


def refusal(path: Path, **options: Any) -> str:
    """Return why a server refuses to start, and check that it leaves the files unchanged."""
    before = contents(path)
    try:
        found = read(path, **options)
    except StartError as error:
        assert contents(path) == before, "the start was refused, but the files were changed"
        assert "\n" not in str(error)
        return str(error)
    raise AssertionError(f"started on damaged files, with {len(found)} items")


def contents(path: Path) -> dict[str, bytes]:
    """Return every file of the store by name, except the lock."""
    return {file.name: file.read_bytes() for file in files(path)}


def open_files() -> int:
    """Return the number of file descriptors that this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def is_journal(descriptor: int) -> bool:
    return ".journal." in name_of(descriptor)


def name_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def files(path: Path) -> Iterator[Path]:
    for file in sorted(path.parent.iterdir()):
        if file.name.startswith(path.name) and not file.name.endswith(".lock"):
            yield file
