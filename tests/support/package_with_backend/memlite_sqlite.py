"""A backend for memlite in a package of its own: records in an SQLite file.

URLs: ``sqlite:///path/cache.db``. Explained in docs/how-to/write-a-backend.md.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from memlite.backends import ANY, Anything, Backend, Record, Versioned
from memlite.backends.registry import BackendUrl, Context
from memlite.core.errors import ConfigError, StartError, StorageError, VersionConflict
from memlite.core.meta_flags import MetaFlags

TABLES = """
CREATE TABLE IF NOT EXISTS items (key BLOB PRIMARY KEY, value BLOB, flags INTEGER, expires REAL,
                                  meta_flags TEXT, version INTEGER);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, number REAL);
INSERT OR IGNORE INTO state VALUES ('version', 0), ('flush_at', 0);
"""


class SQLiteBackend(Backend):
    """Records in a table; each change is one transaction."""

    def __init__(self, path: str, context: Context) -> None:
        self._path = path
        self._clock = context.clock
        # SQLite's calls block, so they run in a thread; a single one, so that they are serialized.
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

    async def get(self, key: bytes) -> Record | None:
        return await self._do(self._get, key)

    def _get(self, key: bytes) -> Record | None:
        self._flush_if_due()
        row = self._database.execute(
            "SELECT value, flags, expires, meta_flags, version FROM items WHERE key = ?", (key,)
        ).fetchone()
        if row is None:
            return None
        value, flags, expires, meta, version = row
        meta_flags = MetaFlags(*json.loads(meta)) if meta else None
        return Record(key, value, flags, expires, version, meta_flags=meta_flags)

    async def put(self, record: Record, replacing: Versioned | Anything | None = ANY) -> int:
        return await self._do(self._put, record, replacing)

    def _put(self, record: Record, replacing: Versioned | Anything | None) -> int:
        key, value, flags, expires = record[:4]
        with self._database as transaction:
            self._check(key, replacing)
            transaction.execute("UPDATE state SET number = number + 1 WHERE name = 'version'")
            version = int(self._state("version"))
            meta = record.meta_flags and json.dumps(record.meta_flags)
            row = (key, value, flags, expires, meta, version)
            transaction.execute("REPLACE INTO items VALUES (?, ?, ?, ?, ?, ?)", row)
            return version

    async def delete(self, key: bytes, replacing: Versioned | Anything = ANY) -> None:
        await self._do(self._delete, key, replacing)

    def _delete(self, key: bytes, replacing: Versioned | Anything) -> None:
        with self._database as transaction:
            self._check(key, replacing)
            transaction.execute("DELETE FROM items WHERE key = ?", (key,))

    def _check(self, key: bytes, replacing: Versioned | Anything | None) -> None:
        current = self._get(key)  # also carries out a flush that is due
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

    async def scan(self) -> AsyncIterator[Record]:
        for (key,) in await self._do(self._keys):
            record = await self.get(key)
            if record is not None:
                yield record

    def _keys(self) -> list[tuple[bytes]]:
        return self._database.execute("SELECT key FROM items").fetchall()


def make(url: BackendUrl, context: Context) -> Backend:
    url.only()  # it has no options
    if not url.path.strip("/"):
        raise ConfigError(
            f"--backend: {url.text!r} does not name a file; use sqlite:///path/cache.db"
        )
    return SQLiteBackend(url.path, context)
