"""Listing a bucket: names in order, folded at a delimiter, a page at a time.

Source of the rules: https://cloud.google.com/storage/docs/json_api/v1/objects/list.
"""

import base64
import binascii
from dataclasses import dataclass

from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.model import Bucket, StoredObject

__all__ = ["Page", "Selection", "list_page"]

MAX_RESULTS = 1000
# The last code point, after which none comes.
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Selection:
    """What a listing is asked for.

    Attributes:
        prefix: how the names begin.
        delimiter: where names are folded into prefixes, when it comes after `prefix`; "" for
            nowhere.
        start: the first name that may be listed.
        end: the first that may not, or "" for no such limit.
        include_trailing_delimiter: list objects whose name ends at the delimiter as well.
        max_results: objects and prefixes on a page; more than 1,000 are cut to that.
        page_token: of the page before; "" for the first page.
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
    """A part of a listing.

    Attributes:
        items: the objects, by name.
        prefixes: what other names were folded into, in order.
        next_token: for the next page; "" on the last.
    """

    items: list[StoredObject]
    prefixes: list[str]
    next_token: str = ""


def list_page(bucket: Bucket, selection: Selection) -> Page:
    """Return a page of the bucket's listing.

    Raises:
        GcsError: 400 for a page token that is none.
    """
    names = bucket.names()
    position = bucket.position(max(selection.prefix, selection.start))
    folded = ""
    if selection.page_token:
        after, folded = _read_token(selection.page_token)
        position = max(position, bucket.position(after))
    room = min(selection.max_results, MAX_RESULTS)
    page = Page([], [])
    while position < len(names):
        name = names[position]
        if not name.startswith(selection.prefix) or (selection.end and name >= selection.end):
            break
        head = _fold(name, selection)
        # Not one that was listed already, here or at the end of the page before.
        new_prefix = bool(head) and head != folded
        item = not head or (selection.include_trailing_delimiter and name == head)
        if (new_prefix or item) and len(page.items) + len(page.prefixes) >= room:
            return Page(page.items, page.prefixes, _write_token(name, folded))
        if new_prefix:
            page.prefixes.append(head)
            folded = head
        elif item:
            page.items.append(bucket.objects[name])
            position += 1
        else:
            position = _position_behind(bucket, head)
    return page


def _fold(name: str, selection: Selection) -> str:
    """Return the name up to its first delimiter after the prefix, or "" without one."""
    if not selection.delimiter:
        return ""
    found = name.find(selection.delimiter, len(selection.prefix))
    return name[: found + len(selection.delimiter)] if found >= 0 else ""


def _position_behind(bucket: Bucket, head: str) -> int:
    """Return where in the names the first stands that comes after all beginning with `head`."""
    stem = head.rstrip(_LAST)
    if not stem:
        return len(bucket.names())
    return bucket.position(stem[:-1] + chr(ord(stem[-1]) + 1))


def _write_token(name: str, folded: str) -> str:
    # No name holds a line's end.
    return base64.urlsafe_b64encode(f"{name}\n{folded}".encode()).decode()


def _read_token(token: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise GcsError.invalid("Invalid page token.", "pageToken") from None
    name, end, folded = text.partition("\n")
    if not end:
        raise GcsError.invalid("Invalid page token.", "pageToken")
    return name, folded
