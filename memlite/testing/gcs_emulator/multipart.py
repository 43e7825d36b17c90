"""Multipart bodies, used by uploads with metadata and by batches."""

from collections.abc import Sequence
from email.message import Message
from functools import lru_cache

from multidict import CIMultiDict

from memlite.testing.gcs_emulator.errors import GcsError

__all__ = ["Part", "parse_multipart", "parse_part", "write_multipart"]

Part = tuple[CIMultiDict[str], bytes]
"""The headers and body of a part."""


def parse_multipart(content_type: str, body: bytes) -> list[Part]:
    """Split a multipart body into its parts.

    Lines may end in CRLF, as in RFC 2046, or in LF alone, as some clients send them.

    Args:
        content_type: the value of the Content-Type header, with the boundary.
        body: the bytes.

    Raises:
        GcsError: 400 if the body is malformed.
    """
    boundary = _boundary(content_type)
    if not content_type.startswith("multipart/") or not boundary:
        raise GcsError.invalid("Expected a multipart body with a boundary.", "Content-Type")
    marker = b"--" + boundary.encode()
    start = 0 if body.startswith(marker) else body.find(b"\n" + marker) + 1
    if start == 0 and not body.startswith(marker):
        raise GcsError.invalid("The multipart body does not start with its boundary.")
    parts: list[Part] = []
    position = start + len(marker)
    while not body.startswith(b"--", position):
        position = body.find(b"\n", position) + 1
        end = body.find(b"\n" + marker, position - 1)
        if position == 0 or end < 0:
            raise GcsError.invalid("The multipart body ends before its last boundary.")
        # The line ending before a boundary belongs to the boundary (RFC 2046, 5.1.1).
        parts.append(parse_part(body[position : max(end, position)].removesuffix(b"\r")))
        position = end + 1 + len(marker)
    return parts


@lru_cache(maxsize=64)  # clients reuse their boundaries
def _boundary(content_type: str) -> str | None:
    message = Message()
    message["Content-Type"] = content_type
    return message.get_boundary()


def parse_part(text: bytes) -> Part:
    """Return the headers and body of a part, or of an HTTP message after its first line.

    Raises:
        GcsError: 400 if the headers are malformed.
    """
    headers: CIMultiDict[str] = CIMultiDict()
    position = 0
    while True:
        end = text.find(b"\n", position)
        line = text[position:] if end < 0 else text[position:end]
        position = len(text) if end < 0 else end + 1
        line = line.rstrip(b"\r")
        if not line:
            return headers, text[position:]
        name, colon, value = line.partition(b":")
        if not colon or end < 0:
            raise GcsError.invalid("The headers of a part are malformed.")
        headers[name.strip().decode("latin-1")] = value.strip().decode("latin-1")


def write_multipart(parts: Sequence[Part], boundary: str) -> bytes:
    """Return a multipart body with these parts."""
    pieces = []
    for headers, body in parts:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        pieces += [f"--{boundary}\r\n{lines}\r\n".encode(), body, b"\r\n"]
    return b"".join(pieces) + f"--{boundary}--\r\n".encode()
