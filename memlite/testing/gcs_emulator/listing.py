"""List a bucket: sorted names, grouped into prefixes at a delimiter, one page at a time.

Reference: https://cloud.google.com/storage/docs/json_api/v1/objects/list.
"""

import base64
import binascii
from dataclasses import dataclass

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.model import Bucket, StoredObject

__all__ = ["Page", "Selection", "list_page"]

MAX_RESULTS = 1000
_LAST_CODE_POINT = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Selection:
    """The parameters of a listing.

    Attributes:
        prefix: list only names with this prefix.
        delimiter: group names that contain this after `prefix`; "" for no grouping.
        start: list only names from this one on.
        end: list only names before this one; "" for no limit.
        include_trailing_delimiter: also list objects whose name ends with the delimiter.
        max_results: the most objects and prefixes on a page; capped at 1,000.
        page_token: the token from the previous page; "" for the first page.
    """

    prefix: str = ""
    delimiter: str = ""
    start: str = ""
    end: str = ""
    include_trailing_delimiter: bool = False
    max_results: int = MAX_RESULTS
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a listing.

    Attributes:
        items: the objects, sorted by name.
        prefixes: the prefixes that stand for the grouped names, sorted.
        next_token: the token for the next page; "" on the last page.
    """

    items: list[StoredObject]
    prefixes: list[str]
    next_token: str = ""


def list_page(bucket: Bucket, selection: Selection) -> Page:
    """Return a page of the bucket's listing.

    Raises:
        GcsError: 400 for an invalid page token.
    """
    names = bucket.names()
    position = bucket.position(max(selection.prefix, selection.start))
    last_prefix = ""
    if selection.page_token:
        next_name, last_prefix = _read_token(selection.page_token)
        position = max(position, bucket.position(next_name))
    limit = min(selection.max_results, MAX_RESULTS)
    page = Page([], [])
    while position < len(names):
        name = names[position]
        if not name.startswith(selection.prefix) or (selection.end and name >= selection.end):
            break
        prefix = _group_prefix(name, selection)
        # False if it was already listed, here or at the end of the previous page.
        new_prefix = bool(prefix) and prefix != last_prefix
        item = not prefix or (selection.include_trailing_delimiter and name == prefix)
        if (new_prefix or item) and len(page.items) + len(page.prefixes) >= limit:
            return Page(page.items, page.prefixes, _write_token(name, last_prefix))
        if new_prefix:
            page.prefixes.append(prefix)
            last_prefix = prefix
        elif item:
            page.items.append(bucket.objects[name])
            position += 1
        else:
            position = _position_after(bucket, prefix)
    return page


def _group_prefix(name: str, selection: Selection) -> str:
    """Return the name up to its first delimiter after the prefix; "" if there is none."""
    if not selection.delimiter:
        return ""
    found = name.find(selection.delimiter, len(selection.prefix))
    return name[: found + len(selection.delimiter)] if found >= 0 else ""


def _position_after(bucket: Bucket, prefix: str) -> int:
    """Return the index of the first name after all names with that prefix."""
    stem = prefix.rstrip(_LAST_CODE_POINT)
    if not stem:
        return len(bucket.names())
    return bucket.position(stem[:-1] + chr(ord(stem[-1]) + 1))


def _write_token(name: str, last_prefix: str) -> str:
    # Names cannot contain newlines.
    return base64.urlsafe_b64encode(f"{name}\n{last_prefix}".encode()).decode()


def _read_token(token: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise GcsError.invalid("Invalid page token.", "pageToken") from None
    name, newline, last_prefix = text.partition("\n")
    if not newline:
        raise GcsError.invalid("Invalid page token.", "pageToken")
    return name, last_prefix
