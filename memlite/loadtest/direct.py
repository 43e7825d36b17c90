"""A store without memlite in front of it, as a target for comparison."""

import contextlib
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import psutil

from memlite.loadtest.dialects import Dialect
from memlite.loadtest.resp import DIRECT
from memlite.loadtest.targets import Target
from memlite.loadtest.valkey import valkey_server

__all__ = ["DirectTarget"]


class DirectTarget(Target):
    """A Valkey or Redis on this machine, which clients access in its own protocol.

    Args:
        name: its display name.
        folder: the parent directory of temporary files.
    """

    dialect = Dialect.RESP

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, DIRECT)
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._server = ""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            own = stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder, prefix="."))
            store = stack.enter_context(valkey_server(Path(own)))
            where = urlsplit(store.url)
            self.address = (str(where.hostname), int(where.port or 0))
            self.processes = [psutil.Process(store.pid)]
            self._server = store.version
            self.details["store"] = f"{store.version} on this machine, without persistence"
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def _version(self) -> str:
        return self._server
