"""A backend for memlite in somebody else's package: items in an SQLite file.

``sqlite:///path/cache.db``. What docs/how-to/write-a-backend.md explains, line by line.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from memlite.backends import ANY, Anything, Backend, FullItem, Item, Marks
from memlite.backends.registry import BackendUrl, Context
from memlite.errors import ConfigError, StartError, StorageError, VersionConflict

TABLES = """
CREATE TABLE IF NOT EXISTS items (key BLOB PRIMARY KEY, value BLOB, flags INTEGER, expires REAL,
                                  marks TEXT, version INTEGER);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, number REAL);
INSERT OR IGNORE INTO state VALUES ('version', 0), ('flush_at', 0);
"""


class SQLiteBackend(Backend):
    """Items in a table; each change is a transaction of its own."""

    def __init__(self, path: str, context: Context) -> None:
        self._path = path
        self._clock = context.clock
        # SQLite's calls block, so they have a thread; one, so they come one after the other.
        self._thread = ThreadPoolExecutor(1)

    async def open(self) -> None:
        try:
            self._database = await self._do(self._connect)
        except StorageError as error:
            raise StartError(f"--backend: {self._path}: {error}") from None

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path)
        database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + TABLES)
        return database

    async def close(self) -> None:
        await self._do(self._database.close)
        self._thread.shutdown()

    async def _do(self, work, *arguments):
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        except sqlite3.Error as error:
            raise StorageError(f"SQLite: {error}") from error

    async def get(self, key: bytes) -> Item | None:
        return await self._do(self._get, key)

    def _get(self, key: bytes) -> Item | None:
        self._flush_if_due()
        row = self._database.execute(
            "SELECT value, flags, expires, marks, version FROM items WHERE key = ?", (key,)
        ).fetchone()
        if row is None:
            return None
        *content, marks, version = row
        return FullItem.of(key, *content, version, marks=marks and Marks(*json.loads(marks)))

    async def put(
        self, key: bytes, item: FullItem, replacing: Item | Anything | None = ANY
    ) -> None:
        item.version = await self._do(self._put, key, item, replacing)

    def _put(self, key: bytes, item: FullItem, replacing: Item | Anything | None) -> int:
        with self._database as transaction:
            self._expect(key, replacing)
            transaction.execute("UPDATE state SET number = number + 1 WHERE name = 'version'")
            version = int(self._state("version"))
            marks = item.marks and json.dumps(item.marks)
            row = (key, item.value, item.flags, item.expires, marks, version)
            transaction.execute("REPLACE INTO items VALUES (?, ?, ?, ?, ?, ?)", row)
            return version

    async def delete(self, key: bytes, replacing: Item | Anything = ANY) -> None:
        await self._do(self._delete, key, replacing)

    def _delete(self, key: bytes, replacing: Item | Anything) -> None:
        with self._database as transaction:
            self._expect(key, replacing)
            transaction.execute("DELETE FROM items WHERE key = ?", (key,))

    def _expect(self, key: bytes, replacing: Item | Anything | None) -> None:
        current = self._get(key)  # which carries out a flush that is due
        if replacing is ANY:
            return
        if (current and current.version) != (replacing and replacing.version):
            raise VersionConflict

    async def flush(self, at: float = 0.0) -> None:
        await self._do(self._flush, at)

    def _flush(self, at: float) -> None:
        with self._database as transaction:
            transaction.execute("UPDATE state SET number = ? WHERE name = 'flush_at'", (at,))
            if not at:
                transaction.execute("DELETE FROM items")

    def _flush_if_due(self) -> None:
        if 0 < self._state("flush_at") <= self._clock.now():
            self._flush(0.0)

    def _state(self, name: str) -> float:
        query = "SELECT number FROM state WHERE name = ?"
        return self._database.execute(query, (name,)).fetchone()[0]

    async def scan(self) -> AsyncIterator[tuple[bytes, Item]]:
        for (key,) in await self._do(self._keys):
            item = await self.get(key)
            if item is not None:
                yield key, item

    def _keys(self) -> list[tuple[bytes]]:
        return self._database.execute("SELECT key FROM items").fetchall()


def make(url: BackendUrl, context: Context) -> Backend:
    url.only()  # it has no options
    if not url.path.strip("/"):
        raise ConfigError(f"--backend: {url.text!r} names no file; write sqlite:///path/cache.db")
    return SQLiteBackend(url.path, context)
