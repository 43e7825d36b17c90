"""What the emulator holds, kept in a directory: for restarts, not for power cuts.

A directory for each bucket holds ``bucket.json`` and a file for each object, named by the SHA-256
of its name: one line of JSON, then the content. Files are written beside their place and renamed,
so that a killed process leaves the old or the new, and no half. Nothing is synced to the device.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import orjson

from memlite.errors import StartError
from memlite.testing.gcs_emulator.model import Attributes, Bucket, StoredObject, crc32c_of

__all__ = ["Disk"]

_BUCKET_FILE = "bucket.json"
_LOCK_FILE = "lock"
_UNFINISHED = ".new"


class Disk:
    """Keeps a store's state in a directory; a `Keeper`.

    Args:
        folder: where; created when it is not there. One emulator at a time may have it.

    Raises:
        StartError: it cannot be used; the text says why.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder / _LOCK_FILE)
        except OSError as error:
            raise StartError(f"{folder}: {error.strerror}") from None

    def close(self) -> None:
        """Let another emulator have the directory."""
        self._lock.close()

    def load(self) -> Iterator[Bucket]:
        """Yield the buckets that were kept, with their objects.

        Raises:
            StartError: a file is not one that the emulator wrote.
        """
        for file in sorted(self._folder.glob(f"*/{_BUCKET_FILE}")):
            try:
                kept = orjson.loads(file.read_bytes())
                bucket = Bucket(kept["name"], kept["properties"], kept["created"])
                bucket.updated, bucket.metageneration = kept["updated"], kept["metageneration"]
                for path in file.parent.iterdir():
                    if path.suffix == _UNFINISHED:
                        path.unlink()
                    elif path.name != _BUCKET_FILE:
                        file = path
                        bucket.put(_read_object(bucket.name, path.read_bytes()))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise StartError(f"{file}: not written by the emulator: {error}") from None
            yield bucket

    def put_bucket(self, bucket: Bucket) -> None:
        """Keep the bucket's properties."""
        folder = self._folder / bucket.name
        folder.mkdir(exist_ok=True)
        kept = {
            "name": bucket.name,
            "properties": bucket.properties,
            "created": bucket.created,
            "updated": bucket.updated,
            "metageneration": bucket.metageneration,
        }
        _write(folder / _BUCKET_FILE, orjson.dumps(kept))

    def delete_bucket(self, name: str) -> None:
        """Forget the bucket, which is empty."""
        (self._folder / name / _BUCKET_FILE).unlink()
        (self._folder / name).rmdir()

    def put_object(self, stored: StoredObject) -> None:
        """Keep the object, in the place of the one of its name."""
        kept = {
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
        _write(self._path(stored), orjson.dumps(kept) + b"\n" + stored.content)

    def delete_object(self, stored: StoredObject) -> None:
        """Forget the object."""
        self._path(stored).unlink()

    def _path(self, stored: StoredObject) -> Path:
        return self._folder / stored.bucket / hashlib.sha256(stored.name.encode()).hexdigest()


def _read_object(bucket: str, data: bytes) -> StoredObject:
    line, _, content = data.partition(b"\n")
    kept: dict[str, Any] = orjson.loads(line)
    attributes = kept.pop("attributes")
    if attributes["custom_time"]:
        attributes["custom_time"] = datetime.fromisoformat(attributes["custom_time"])
    if crc32c_of(content) != kept["crc32c"]:
        raise ValueError("its checksum is wrong")
    return StoredObject(bucket=bucket, content=content, attributes=Attributes(**attributes), **kept)


def _write(path: Path, data: bytes) -> None:
    beside = path.with_suffix(_UNFINISHED)
    beside.write_bytes(data)
    beside.replace(path)


def _lock(path: Path) -> IO[bytes]:
    """Open the file and hold it for this process.

    Raises:
        StartError: another process holds it.
    """
    file = path.open("wb")
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StartError(f"{path.parent}: another emulator has it") from None
    return file
