r"""Lines of a journal and of a snapshot: bytes in, bytes out. `docs/reference/file-format.md`.

Text stands as text; keys and values that are not UTF-8 stand as base64, under another name.
A journal line begins with a checksum of the rest of it and of all lines before it, so that a
line that is missing, doubled or moved is found out as well as one that is damaged.
"""

import base64
import zlib
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import orjson

from memlite.backends.item import FullItem, Item, Marks

__all__ = [
    "FORMAT",
    "DamageError",
    "Header",
    "Record",
    "checked_lines",
    "delete_record",
    "flush_record",
    "journal_header",
    "parse_item",
    "parse_snapshot_end",
    "parse_snapshot_head",
    "put_record",
    "read_header",
    "read_record",
    "snapshot_end",
    "snapshot_head",
    "snapshot_line",
]

FORMAT: Final = 1
"""Counts up when a file is written that an older version of memlite could not read."""

_MARKS: Final = frozenset(Marks._fields)
_CRC_PREFIX: Final = b'{"crc":'


# Digits of the largest checksum.
_CRC_DIGITS: Final = 10


class DamageError(Exception):
    """A line is not what was written. The text says what is wrong with it.

    Args:
        text: what is wrong.
        cure: what can be done about it, if that is something of its own.
    """

    def __init__(self, text: str, cure: str = "") -> None:
        super().__init__(text)
        self.cure = cure


class Record(NamedTuple):
    """A journal line.

    Attributes:
        operation: ``set``, ``delete`` or ``flush``.
        version: the item's, or where the change comes in the order of all.
        key: empty for flush.
        item: for set.
        at: for flush, when; 0 for at once.
    """

    operation: Literal["set", "delete", "flush"]
    version: int
    key: bytes = b""
    item: Item | None = None
    at: float = 0.0


class Header(NamedTuple):
    """The first line of a journal.

    Attributes:
        number: which of the journals it is.
        version: the last one given out before.
    """

    number: int
    version: int


# Content


def _put_bytes(fields: dict[str, Any], name: str, content: bytes) -> None:
    try:
        fields[name] = content.decode()
    except UnicodeDecodeError:
        fields[name + "_base64"] = base64.b64encode(content).decode()


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


def _put_item(fields: dict[str, Any], key: bytes, item: Item) -> None:
    _put_bytes(fields, "key", key)
    _put_bytes(fields, "value", item.value)
    if item.flags:
        fields["flags"] = item.flags
    if item.expires:
        fields["expires"] = round(item.expires, 3)
    fields["stored"] = item.accessed
    if item.marks is not None:
        _put_marks(fields, item.marks)


def _get_item(fields: dict[str, Any], version: int) -> tuple[bytes, Item]:
    key, value = _get_bytes(fields, "key"), _get_bytes(fields, "value")
    flags, expires = fields.get("flags", 0), fields.get("expires", 0.0)
    stored = fields.get("stored", 0)
    if not (_is_count(flags) and isinstance(expires, int | float) and _is_count(stored)):
        raise DamageError("flags, expires or stored is no number")
    marks = _get_marks(fields) if _MARKS.intersection(fields) else None
    return key, FullItem.of(key, value, flags, float(expires), version, stored, marks)


def _put_marks(fields: dict[str, Any], marks: Marks) -> None:
    """Add those that are set, under their names."""
    fields.update((name, True) for name in ("stale", "won", "binary") if getattr(marks, name))
    if marks.unique is not None:
        fields["unique"] = marks.unique


def _get_marks(fields: dict[str, Any]) -> Marks:
    unique = fields.get("unique")
    if not (unique is None or _is_count(unique)):
        raise DamageError("unique is no number")
    stale, won, binary = (fields.get(name, False) is True for name in ("stale", "won", "binary"))
    return Marks(stale, won, binary, unique)


def _is_count(value: object) -> bool:
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
    if not isinstance(value, int) or not _is_count(value):
        raise DamageError(f"no {name}")
    return value


# Journal. A record without its checksum is what the following return; `checked_lines` adds it.


def put_record(key: bytes, item: Item) -> bytes:
    """Return the record of a stored item."""
    fields: dict[str, Any] = {"n": item.version, "op": "set"}
    _put_item(fields, key, item)
    return orjson.dumps(fields)


def delete_record(version: int, key: bytes) -> bytes:
    """Return the record of a key that was removed."""
    fields: dict[str, Any] = {"n": version, "op": "delete"}
    _put_bytes(fields, "key", key)
    return orjson.dumps(fields)


def flush_record(version: int, at: float) -> bytes:
    """Return the record of a flush, of now (0) or to come."""
    return orjson.dumps({"n": version, "op": "flush", **({"at": round(at, 3)} if at else {})})


def journal_header(header: Header) -> bytes:
    """Return the record that a journal begins with."""
    fields = {"memlite": "journal", "format": FORMAT, "journal": header.number, "n": header.version}
    return orjson.dumps(fields)


def checked_lines(records: Iterable[bytes], crc: int) -> tuple[bytes, int]:
    """Return lines of records, and the checksum that the next line goes on from.

    Args:
        records: as `put_record` and the others return them.
        crc: the checksum of the line before, 0 for the first.
    """
    lines = []
    for record in records:
        crc = zlib.crc32(record, crc)
        lines.append(b"%b%d,%b\n" % (_CRC_PREFIX, crc, record[1:]))
    return b"".join(lines), crc


def _uncheck(line: bytes, crc: int) -> tuple[dict[str, Any], int]:
    digits, comma, rest = line[len(_CRC_PREFIX) :].partition(b",")
    if not (
        line.startswith(_CRC_PREFIX)
        and comma
        and digits.isdigit()
        and len(digits) <= _CRC_DIGITS  # int() refuses thousands of them
    ):
        raise DamageError("not a line of a journal")
    record = b"{" + rest
    crc = zlib.crc32(record, crc)
    if crc != int(digits):
        raise DamageError("its checksum does not match")
    return _load(record), crc


def read_header(line: bytes) -> tuple[Header, int]:
    """Read a journal's first line (without its end); return it and its checksum.

    Raises:
        DamageError: it is not one, or from a later version of memlite.
    """
    fields, crc = _uncheck(line, 0)
    _check_kind(fields, "journal")
    return Header(_count(fields, "journal"), _count(fields, "n")), crc


def read_record(line: bytes, crc: int) -> tuple[Record, int]:
    """Read another line (without its end); return it and its checksum.

    Args:
        line: the line.
        crc: the checksum of the line before.

    Raises:
        DamageError: it is damaged, or not the one that was written here.
    """
    fields, crc = _uncheck(line, crc)
    version = _count(fields, "n")
    match fields.get("op"):
        case "set":
            key, item = _get_item(fields, version)
            return Record("set", version, key, item), crc
        case "delete":
            return Record("delete", version, _get_bytes(fields, "key")), crc
        case "flush":
            at = fields.get("at", 0.0)
            if not isinstance(at, int | float):
                raise DamageError("at is no number")
            return Record("flush", version, at=float(at)), crc
    raise DamageError(f"unknown operation {fields.get('op')!r}")


def _check_kind(fields: dict[str, Any], kind: str) -> None:
    if fields.get("memlite") != kind:
        raise DamageError(f"not a {kind} of memlite")
    if fields.get("format") != FORMAT:
        raise DamageError(
            f"its format is {fields.get('format')!r}, and this version of memlite reads {FORMAT}",
            cure="Start the version of memlite that wrote it",
        )


# Snapshot. One JSON object, an item to a line.


def snapshot_head(journal: int, version: int, flush_at: float) -> bytes:
    """Return a snapshot's first line.

    Args:
        journal: number of the first journal that goes on from it.
        version: the last one given out when it was begun.
        flush_at: unix time of a flush to come, 0 for none.
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


def snapshot_line(key: bytes, item: Item) -> bytes:
    """Return an item's line, without the comma and the end."""
    fields: dict[str, Any] = {}
    _put_item(fields, key, item)
    fields["cas"] = item.version
    return orjson.dumps(fields)


def snapshot_end(count: int, crc: int) -> bytes:
    """Return a snapshot's last line.

    Args:
        count: how many items came before.
        crc: checksum of all bytes before it.
    """
    return b'],"count":%d,"crc":%d}\n' % (count, crc)


def parse_snapshot_head(line: bytes) -> tuple[int, int, float]:
    """Read a snapshot's first line; return the arguments of `snapshot_head`.

    Raises:
        DamageError: it is not one, or from a later version of memlite.
    """
    fields = _load(line.rstrip() + b"]}")
    _check_kind(fields, "snapshot")
    flush_at = fields.get("flush_at", 0.0)
    if not isinstance(flush_at, int | float):
        raise DamageError("flush_at is no number")
    return _count(fields, "journal"), _count(fields, "n"), float(flush_at)


def parse_item(line: bytes) -> tuple[bytes, Item]:
    """Read an item's line; return its key and the item.

    Raises:
        DamageError: it is damaged.
    """
    fields = _load(line.rstrip(b",\r\n"))
    return _get_item(fields, _count(fields, "cas"))


def parse_snapshot_end(line: bytes) -> tuple[int, int | None]:
    """Read a snapshot's last line; return its count, and its checksum if it has one.

    Raises:
        DamageError: it is damaged.
    """
    fields = _load(b'{"items":[' + line.rstrip())
    return _count(fields, "count"), _count(fields, "crc") if "crc" in fields else None
