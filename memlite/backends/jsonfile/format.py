r"""Lines of journals and snapshots: bytes in, bytes out. See `docs/reference/file-format.md`.

Text is written as text; keys and values that are not UTF-8 are written as base64 under another
name. A journal line begins with a checksum of the rest of the line and of all lines before it,
which detects missing, duplicated and moved lines as well as damaged ones.
"""

import base64
import re
import zlib
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import orjson

from memlite.backends.record import Record
from memlite.core.meta_flags import MetaFlags
from memlite.memory.item import FullItem

__all__ = [
    "FORMAT",
    "JOURNAL_FORMAT",
    "MARKER",
    "MAX_PLAIN",
    "PLAIN_PUT",
    "DamageError",
    "Entry",
    "Header",
    "checked_lines",
    "delete_entry",
    "flush_entry",
    "journal_header",
    "parse_snapshot_end",
    "parse_snapshot_head",
    "parse_snapshot_line",
    "put_entry",
    "read_entry",
    "read_header",
    "snapshot_end",
    "snapshot_head",
    "snapshot_line",
    "synced_according_to",
]

FORMAT: Final = 1
"""The format of snapshots. It increases with changes that older versions of memlite cannot read."""
JOURNAL_FORMAT: Final = 2
"""The format of journals, likewise. Before 2, they did not record how much of them was durable."""

_META_FLAGS: Final = frozenset(MetaFlags._fields)
_CRC_PREFIX: Final = b'{"crc":'
_SYNCED: Final = re.compile(rb'"synced":(\d{1,18})\}')

_CRC_DIGITS: Final = 10  # of the largest checksum


class DamageError(Exception):
    """A line differs from what was written.

    Args:
        text: what is wrong with it.
        cure: how to repair it, if there is a better way than the usual ones.
    """

    def __init__(self, text: str, cure: str = "") -> None:
        super().__init__(text)
        self.cure = cure


class Entry(NamedTuple):
    """A change, as a line of the journal describes it.

    Attributes:
        operation: the operation; ``synced`` for none.
        version: for set, the version of the record; otherwise a version that no record has.
        key: the key; empty for flush.
        record: for set, the stored record.
        at: for flush, the unix time at which to flush; 0 for at once.
    """

    operation: Literal["set", "delete", "flush", "synced"]
    version: int = 0
    key: bytes = b""
    record: Record | None = None
    at: float = 0.0


class Header(NamedTuple):
    """The first line of a journal.

    Attributes:
        number: the number of the journal.
        version: the last version assigned before the journal was begun.
        format: see `JOURNAL_FORMAT`.
    """

    number: int
    version: int
    format: int = JOURNAL_FORMAT


# Content


def _put_bytes(fields: dict[str, Any], name: str, content: bytes) -> None:
    try:
        fields[name] = content.decode()
    except UnicodeDecodeError:
        fields[name + "_base64"] = base64.b64encode(content).decode()


def _put_binary(fields: dict[str, Any], key: bytes, value: bytes) -> None:
    """Add the key, unless already added, and the value; at least one is not UTF-8."""
    if "key" not in fields:
        _put_bytes(fields, "key", key)
    _put_bytes(fields, "value", value)


def _get_bytes(fields: dict[str, Any], name: str) -> bytes:
    text = fields.get(name)
    if isinstance(text, str):
        return text.encode()
    text = fields.get(name + "_base64")
    if isinstance(text, str):
        try:
            return base64.b64decode(text, validate=True)
        except ValueError as error:
            raise DamageError(f"{name}_base64 is not base64: {error}") from None
    raise DamageError(f"no {name}")


def _put_item(fields: dict[str, Any], key: bytes, item: FullItem) -> None:
    value, flags, stored, _ = item.content()
    try:
        fields["key"] = key.decode()
        fields["value"] = value.decode()
    except UnicodeDecodeError:
        _put_binary(fields, key, value)
    if flags:
        fields["flags"] = flags
    if item.expires:
        fields["expires"] = round(item.expires, 3)
    fields["stored"] = stored
    if not isinstance(item.extra, int):
        _put_meta_flags(fields, item.extra[1])


def _get_record(fields: dict[str, Any], version: int) -> Record:
    key, value = _get_bytes(fields, "key"), _get_bytes(fields, "value")
    flags, expires = fields.get("flags", 0), fields.get("expires", 0.0)
    stored = fields.get("stored", 0)
    if not (_is_unsigned(flags) and isinstance(expires, int | float) and _is_unsigned(stored)):
        raise DamageError("flags, expires or stored is not a number")
    meta_flags = _get_meta_flags(fields) if _META_FLAGS.intersection(fields) else None
    return Record(key, value, flags, float(expires), version, stored, meta_flags=meta_flags)


def _put_meta_flags(fields: dict[str, Any], meta_flags: MetaFlags) -> None:
    """Add the flags that are set, under their names."""
    fields.update((name, True) for name in ("stale", "won", "binary") if getattr(meta_flags, name))
    if meta_flags.unique is not None:
        fields["unique"] = meta_flags.unique


def _get_meta_flags(fields: dict[str, Any]) -> MetaFlags:
    unique = fields.get("unique")
    if not (unique is None or _is_unsigned(unique)):
        raise DamageError("unique is not a number")
    stale, won, binary = (fields.get(name, False) is True for name in ("stale", "won", "binary"))
    return MetaFlags(stale, won, binary, unique)


def _is_unsigned(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _load(text: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DamageError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise DamageError("not a JSON object")
    return fields


def _count(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or not _is_unsigned(value):
        raise DamageError(f"no {name}")
    return value


# The journal. These functions return entries without checksums; `checked_lines` adds them.


PLAIN_PUT: Final = b'{"n":%d,"op":"set","key":%b,"value":%b,"stored":%d}'
"""The result of `put_entry` for a text without flags, expiry and meta flags.

Format it with the version, the key and value as JSON strings, and the unix time. That takes a
sixth less time than `put_entry`, except for values of more than `MAX_PLAIN` bytes, which are copied
once more.
"""
MAX_PLAIN: Final = 4096


def put_entry(key: bytes, item: FullItem) -> bytes:
    """Return the entry for an item that was stored."""
    fields: dict[str, Any] = {"n": item.version, "op": "set"}
    _put_item(fields, key, item)
    return orjson.dumps(fields)


def delete_entry(version: int, key: bytes) -> bytes:
    """Return the entry for a key that was removed."""
    fields: dict[str, Any] = {"n": version, "op": "delete"}
    _put_bytes(fields, "key", key)
    return orjson.dumps(fields)


def flush_entry(version: int, at: float) -> bytes:
    """Return the entry for a flush, at once (0) or at the unix time `at`."""
    return orjson.dumps({"n": version, "op": "flush", **({"at": round(at, 3)} if at else {})})


def journal_header(header: Header) -> bytes:
    """Return the entry with which a journal begins."""
    fields = {
        "memlite": "journal",
        "format": JOURNAL_FORMAT,
        "journal": header.number,
        "n": header.version,
    }
    return orjson.dumps(fields)


MARKER: Final = b'{"op":"synced"}'
"""An entry without a change, which only records how much of the file is durable."""


def checked_lines(entries: Iterable[bytes], crc: int, synced: int = 0) -> tuple[bytes, int]:
    """Return entries as lines with checksums, and the checksum of the last one.

    Args:
        entries: from `put_entry` and the other functions.
        crc: the checksum of the previous line, 0 for the first line of a file.
        synced: bytes of the file that are durable, to be noted in the first of these lines; 0 for
            no note.
    """
    lines = []
    for entry in entries:
        if synced:
            entry = b'%b,"synced":%d}' % (entry[:-1], synced)
            synced = 0
        crc = zlib.crc32(entry, crc)
        lines.append(b"%b%d,%b\n" % (_CRC_PREFIX, crc, entry[1:]))
    return b"".join(lines), crc


def _verify_line(line: bytes, crc: int) -> tuple[dict[str, Any], int]:
    digits, comma, rest = line[len(_CRC_PREFIX) :].partition(b",")
    if not (
        line.startswith(_CRC_PREFIX)
        and comma
        and digits.isdigit()
        and len(digits) <= _CRC_DIGITS  # int() refuses thousands of them
    ):
        raise DamageError("not a journal line")
    entry = b"{" + rest
    crc = zlib.crc32(entry, crc)
    if crc != int(digits):
        raise DamageError("checksum mismatch")
    return _load(entry), crc


def synced_according_to(rest: bytes) -> int:
    """Return how many bytes of its file were durable, according to a part of a journal.

    The part may be damaged. No key or value can contain the searched text, as quotes in them are
    escaped.
    """
    return max(map(int, _SYNCED.findall(rest)), default=0)


def read_header(line: bytes) -> tuple[Header, int]:
    """Parse the first line of a journal (without its line ending); return it and its checksum.

    Raises:
        DamageError: it is invalid, or was written by a later version of memlite.
    """
    fields, crc = _verify_line(line, 0)
    file_format = _check_kind(fields, "journal", JOURNAL_FORMAT)
    return Header(_count(fields, "journal"), _count(fields, "n"), file_format), crc


def read_entry(line: bytes, crc: int) -> tuple[Entry, int]:
    """Parse any other line (without its line ending); return it and its checksum.

    Args:
        line: the line.
        crc: the checksum of the previous line.

    Raises:
        DamageError: it is damaged, or was not written after that line.
    """
    fields, crc = _verify_line(line, crc)
    if fields.get("op") == "synced":
        return Entry("synced"), crc
    version = _count(fields, "n")
    match fields.get("op"):
        case "set":
            record = _get_record(fields, version)
            return Entry("set", version, record.key, record), crc
        case "delete":
            return Entry("delete", version, _get_bytes(fields, "key")), crc
        case "flush":
            at = fields.get("at", 0.0)
            if not isinstance(at, int | float):
                raise DamageError("at is not a number")
            return Entry("flush", version, at=float(at)), crc
    raise DamageError(f"unknown operation {fields.get('op')!r}")


def _check_kind(fields: dict[str, Any], kind: str, latest: int) -> int:
    """Check that a file is of the right kind, and return its format."""
    if fields.get("memlite") != kind:
        raise DamageError(f"not a memlite {kind}")
    file_format = fields.get("format")
    if not (isinstance(file_format, int) and 1 <= file_format <= latest):
        raise DamageError(
            f"its format is {file_format!r}, but this version of memlite only supports up to "
            f"{latest}",
            cure="Start the version of memlite that wrote it",
        )
    return file_format


# The snapshot: one JSON object, with one item per line.


def snapshot_head(journal: int, version: int, flush_at: float) -> bytes:
    """Return the first line of a snapshot.

    Args:
        journal: number of the first journal that continues it.
        version: the last version assigned when it was begun.
        flush_at: unix time of a flush that is still to come, 0 for none.
    """
    fields: dict[str, Any] = {
        "memlite": "snapshot",
        "format": FORMAT,
        "journal": journal,
        "n": version,
    }
    if flush_at:
        fields["flush_at"] = round(flush_at, 3)
    return orjson.dumps(fields)[:-1] + b',"items":[\n'


def snapshot_line(key: bytes, item: FullItem) -> bytes:
    """Return the line of an item, without comma and line ending."""
    fields: dict[str, Any] = {}
    _put_item(fields, key, item)
    fields["cas"] = item.version
    return orjson.dumps(fields)


def snapshot_end(count: int, crc: int) -> bytes:
    """Return the last line of a snapshot.

    Args:
        count: number of items.
        crc: checksum of all bytes before this line.
    """
    return b'],"count":%d,"crc":%d}\n' % (count, crc)


def parse_snapshot_head(line: bytes) -> tuple[int, int, float]:
    """Parse the first line of a snapshot; return the arguments of `snapshot_head`.

    Raises:
        DamageError: it is invalid, or was written by a later version of memlite.
    """
    fields = _load(line.rstrip() + b"]}")
    _check_kind(fields, "snapshot", FORMAT)
    flush_at = fields.get("flush_at", 0.0)
    if not isinstance(flush_at, int | float):
        raise DamageError("flush_at is not a number")
    return _count(fields, "journal"), _count(fields, "n"), float(flush_at)


def parse_snapshot_line(line: bytes) -> Record:
    """Parse the line of a record.

    Raises:
        DamageError: it is damaged.
    """
    fields = _load(line.rstrip(b",\r\n"))
    return _get_record(fields, _count(fields, "cas"))


def parse_snapshot_end(line: bytes) -> tuple[int, int | None]:
    """Parse the last line of a snapshot; return its count, and its checksum if it has one.

    Raises:
        DamageError: it is damaged.
    """
    fields = _load(b'{"items":[' + line.rstrip())
    return _count(fields, "count"), _count(fields, "crc") if "crc" in fields else None
