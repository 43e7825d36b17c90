"""Persistence in a directory: survives restarts, but not power failures.

Each bucket has a directory with ``bucket.json`` and one file per object. An object's file is named
after the SHA-256 of the object's name and contains one line of JSON followed by the content. Files
are written under a temporary name and renamed, so that a killed process leaves either the old or
the new version. Nothing is synced to the device.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import orjson

from memlite.core.errors import StartError
from memlite.testing.gcs_emulator.model import Attributes, Bucket, StoredObject, crc32c_of

__all__ = ["Disk"]

_BUCKET_FILE = "bucket.json"
_LOCK_FILE = "lock"
_TEMPORARY_SUFFIX = ".new"


class Disk:
    """Persists a store in a directory; a `Persistence`.

    Args:
        folder: the directory; created if missing. Only one emulator may use it at a time.

    Raises:
        StartError: the directory cannot be used; the message says why.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder / _LOCK_FILE)
        except OSError as error:
            raise StartError(f"{folder}: {error.strerror}") from None

    def close(self) -> None:
        """Release the directory for other emulators."""
        self._lock.close()

    def load(self) -> Iterator[Bucket]:
        """Yield the saved buckets with their objects.

        Raises:
            StartError: a file is damaged or was not written by the emulator.
        """
        for file in sorted(self._folder.glob(f"*/{_BUCKET_FILE}")):
            try:
                saved = orjson.loads(file.read_bytes())
                bucket = Bucket(saved["name"], saved["properties"], saved["created"])
                bucket.updated, bucket.metageneration = saved["updated"], saved["metageneration"]
                for path in file.parent.iterdir():
                    if path.suffix == _TEMPORARY_SUFFIX:
                        path.unlink()
                    elif path.name != _BUCKET_FILE:
                        file = path
                        bucket.put(_read_object(bucket.name, path.read_bytes()))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise StartError(f"{file}: not written by the emulator: {error}") from None
            yield bucket

    def put_bucket(self, bucket: Bucket) -> None:
        """Save a bucket's properties."""
        folder = self._folder / bucket.name
        folder.mkdir(exist_ok=True)
        saved = {
            "name": bucket.name,
            "properties": bucket.properties,
            "created": bucket.created,
            "updated": bucket.updated,
            "metageneration": bucket.metageneration,
        }
        _write(folder / _BUCKET_FILE, orjson.dumps(saved))

    def delete_bucket(self, name: str) -> None:
        """Delete an empty bucket."""
        (self._folder / name / _BUCKET_FILE).unlink()
        (self._folder / name).rmdir()

    def put_object(self, stored: StoredObject) -> None:
        """Save an object, replacing the one with its name."""
        saved = {
            "name": stored.name,
            "attributes": asdict(stored.attributes),
            "generation": stored.generation,
            "metageneration": stored.metageneration,
            "crc32c": stored.crc32c,
            "md5": stored.md5,
            "created": stored.created,
            "updated": stored.updated,
            "component_count": stored.component_count,
        }
        _write(self._path(stored), orjson.dumps(saved) + b"\n" + stored.content)

    def delete_object(self, stored: StoredObject) -> None:
        """Delete an object."""
        self._path(stored).unlink()

    def _path(self, stored: StoredObject) -> Path:
        return self._folder / stored.bucket / hashlib.sha256(stored.name.encode()).hexdigest()


def _read_object(bucket: str, data: bytes) -> StoredObject:
    line, _, content = data.partition(b"\n")
    saved: dict[str, Any] = orjson.loads(line)
    attributes = saved.pop("attributes")
    if attributes["custom_time"]:
        attributes["custom_time"] = datetime.fromisoformat(attributes["custom_time"])
    if crc32c_of(content) != saved["crc32c"]:
        raise ValueError("wrong checksum")
    return StoredObject(
        bucket=bucket, content=content, attributes=Attributes(**attributes), **saved
    )


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(_TEMPORARY_SUFFIX)
    temporary.write_bytes(data)
    temporary.replace(path)


def _lock(path: Path) -> IO[bytes]:
    """Open the file and lock it for this process.

    Raises:
        StartError: another process has locked it.
    """
    file = path.open("wb")
    try:
        import fcntl
    except ImportError:  # not available on Windows
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StartError(f"{path.parent}: in use by another emulator") from None
    return file
