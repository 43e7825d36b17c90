"""Reads a snapshot and the journals that continue it, at start-up."""

import logging
import os
import re
import shlex
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from memlite.backends.conversion import item_of
from memlite.backends.jsonfile.format import (
    DamageError,
    Entry,
    parse_snapshot_end,
    parse_snapshot_head,
    parse_snapshot_line,
    read_entry,
    read_header,
    synced_according_to,
)
from memlite.core.errors import StartError
from memlite.memory.item import FullItem

__all__ = ["Loaded", "journal_path", "journals_of", "load"]

_log = logging.getLogger("memlite")

_NUMBER = re.compile("[1-9][0-9]*")
# The first format in which journals record how much of them is durable.
_NOTES_SYNCS = 2
_LINE_BEGIN: Final = b'{"crc":'


@dataclass(slots=True)
class Loaded:
    """The content of the files.

    Attributes:
        items: the items by key; some may have expired. They are not records, because all go into a
            table.
        version: the last version assigned.
        snapshot_version: the last version assigned when the snapshot was begun.
        flush_at: unix time of a flush that is still to come, 0 for none.
        first: number of the first journal that continues the snapshot; earlier ones are obsolete.
        journal: number of the journal to append to.
        size: intact bytes of that journal, 0 if it has to be created.
        crc: checksum of its last line.
        snapshot: bytes of the snapshot.
    """

    items: dict[bytes, FullItem] = field(default_factory=dict)
    version: int = 0
    snapshot_version: int = 0
    flush_at: float = 0.0
    first: int = 1
    journal: int = 1
    size: int = 0
    crc: int = 0
    snapshot: int = 0


def journal_path(path: Path, number: int) -> Path:
    """Return the path of a snapshot's journal with that number."""
    return path.with_name(f"{path.name}.journal.{number}")


def journals_of(path: Path) -> dict[int, Path]:
    """Return the existing journals, by number."""
    prefix = f"{path.name}.journal."
    found = {}
    for entry in path.parent.iterdir():
        number = entry.name.removeprefix(prefix)
        if entry.name.startswith(prefix) and _NUMBER.fullmatch(number):
            found[int(number)] = entry
    return found


def _is_begun(journal: Path) -> bool:
    """Return whether a journal has a complete first line; otherwise it is empty."""
    with journal.open("rb") as file:
        return file.readline().endswith(b"\n")


def load(path: Path) -> Loaded:
    """Read the files at `path`. The only change made is to cut off a torn last line.

    Raises:
        StartError: a file is damaged; the text says where, and what to do.
        OSError: a file cannot be read.
    """
    loaded = Loaded()
    journals = journals_of(path)
    if not path.exists():
        if journals:
            raise StartError(
                f"--backend: {path} is missing, but {journals[min(journals)].name} exists: "
                "restore the missing file, or move the journals away to start empty"
            )
        return loaded
    _load_snapshot(path, loaded)
    loaded.journal = loaded.first
    last = max(journals, default=0)
    # The last one is ignored if it was never begun, for example because the disk was full.
    while last > loaded.first and last in journals and not _is_begun(journals[last]):
        last -= 1
    if loaded.first not in journals and last <= loaded.first and loaded.version:
        _log.warning(
            "%s is missing: any changes in it are lost",
            journal_path(path, loaded.first),
        )
    for number in range(loaded.first, last + 1):
        journal = journals.get(number)
        if journal is None:
            raise StartError(
                f"--backend: {journal_path(path, number)} is missing, but a later journal exists: "
                "restore the missing one, or move the later ones away to continue without them"
            )
        loaded.journal = number
        _replay(journal, number, loaded, is_last=number == last)
    return loaded


def _load_snapshot(path: Path, loaded: Loaded) -> None:
    crc = count = 0
    number = 1
    line = b""
    with path.open("rb") as file:
        try:
            line = file.readline()
            loaded.first, loaded.version, loaded.flush_at = parse_snapshot_head(line)
            loaded.snapshot_version = loaded.version
            while True:
                crc = zlib.crc32(line, crc)
                line = file.readline()
                number += 1
                if line.startswith(b"]") or not line:
                    break
                record = parse_snapshot_line(line)
                loaded.items[record.key] = item_of(record, FullItem)
                loaded.version = max(loaded.version, record.version)
                count += 1
            if not line:
                raise DamageError("unexpected end of file")
            expected, checksum = parse_snapshot_end(line)
            # Removing the checksum is how to declare that the file was edited by hand.
            if checksum not in (None, crc):
                raise DamageError(
                    "checksum mismatch",
                    cure=f"If it was edited by hand, remove ',\"crc\":{checksum}' from this line",
                )
            if checksum is not None and expected != count:
                raise DamageError(f"it contains {count} items instead of {expected}")
            if file.read(1):
                raise DamageError("there is data after its end")
            loaded.snapshot = file.tell()
        except DamageError as error:
            cure = f"{error.cure}; otherwise restore" if error.cure else "Restore"
            raise StartError(
                f"--backend: {path} is damaged, or was not written by memlite, at line {number}: "
                f"{error}. Nothing was changed. {cure} it from a backup, or move it and its "
                "journals away to start empty"
            ) from None


def _replay(path: Path, journal: int, loaded: Loaded, *, is_last: bool) -> None:
    data = path.read_bytes()
    crc = position = number = form = 0
    while position < len(data):
        end = data.find(b"\n", position)
        line = data[position : end if end >= 0 else len(data)]
        number += 1
        try:
            if end < 0:
                raise DamageError("the line is incomplete")
            if position == 0:
                header, crc = read_header(line)
                if header.number != journal:
                    raise DamageError(f"it is journal {header.number}, but its name says otherwise")
                loaded.version = max(loaded.version, header.version)
                form = header.format
            else:
                entry, crc = read_entry(line, crc)
                _apply(entry, loaded)
        except DamageError as error:
            if not is_last or not _is_torn(data, position, crc, form):
                _refuse(path, number, position, error, is_last=is_last)
            _drop(path, data, position)
            break
        position = end + 1
    loaded.size, loaded.crc = position, crc


def _is_torn(data: bytes, position: int, crc: int, form: int) -> bool:
    """Return whether `position` is the start of an incomplete write.

    After a loss of power, any part of the file that was not synced may be missing, because blocks
    are written in any order. Damage in the synced part is not from a torn write, but happened
    later.

    Args:
        data: the content of the journal.
        position: the start of the first line that is damaged.
        crc: the checksum of the line before.
        form: the format of the journal, 0 if its first line is damaged.
    """
    rest = data[position:]
    if form >= _NOTES_SYNCS:
        return synced_according_to(rest) <= position
    line, *following = rest.split(b"\n")
    # Before format 2: such a line lacks its end, or contains zeros, and no complete one follows.
    if any(other.startswith(_LINE_BEGIN) and other.endswith(b"}") for other in following):
        # Without the first line, the format is not known, but a later line may note a sync.
        return not form and _is_missing(rest) and not synced_according_to(rest)
    if following:
        return b"\0\0" in line
    # If it is intact except for its last byte, it was written completely, and then damaged.
    return not _is_entry(line[:-1], position, crc)


def _is_missing(data: bytes) -> bool:
    """Return whether a journal's first block was never written, and is not only damaged."""
    begin = data[: len(_LINE_BEGIN)]
    different = sum(one != other for one, other in zip(begin, _LINE_BEGIN, strict=True))
    return different > len(_LINE_BEGIN) // 2


def _drop(path: Path, data: bytes, position: int) -> None:
    """Truncate a file at `position`, and keep a copy of the rest."""
    copy = path.with_name(f"{path.name}.dropped")
    try:
        copy.write_bytes(data[position:])
        kept = f"the dropped bytes were saved to {copy.name}"
    except OSError as error:
        kept = f"the dropped bytes could not be saved to {copy.name}: {error.strerror}"
    _log.warning(
        "%s: dropped its last %d bytes, an incomplete write. If a power failure caused this, none "
        "of it had been acknowledged with --durability always; if the file was damaged in another "
        "way, some of it may have been; %s",
        path,
        len(data) - position,
        kept,
    )
    os.truncate(path, position)


def _is_entry(line: bytes, position: int, crc: int) -> bool:
    try:
        if position:
            read_entry(line, crc)
        else:
            read_header(line)
    except DamageError:
        return False
    return True


def _refuse(
    path: Path, number: int, position: int, error: DamageError, *, is_last: bool
) -> NoReturn:
    later = "" if is_last else "move the later journals away and "
    cure = f"{error.cure}; otherwise restore" if error.cure else "Restore"
    raise StartError(
        f"--backend: {path} is damaged at line {number}: {error}. Nothing was changed. {cure} it "
        f"from a backup, or {later}discard the rest with: truncate -s {position} "
        f"{shlex.quote(str(path))}"
    ) from None


def _apply(entry: Entry, loaded: Loaded) -> None:
    if entry.operation == "synced":
        return
    loaded.version = max(loaded.version, entry.version)
    if entry.operation == "flush":
        loaded.flush_at = entry.at
        if not entry.at:
            loaded.items.clear()
        return
    if entry.record is not None:
        loaded.items[entry.key] = item_of(entry.record, FullItem)
    else:
        loaded.items.pop(entry.key, None)
