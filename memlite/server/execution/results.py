"""One-word summaries of replies."""

from typing import Final

from memlite.protocol.magic import MAGIC_OF_REPLIES

__all__ = ["failed", "result_of"]

_STATUS: Final = "status "
_FIRST_FAILURE: Final = 0x82
"""Binary statuses from this one (out of memory) on are failures of the server."""


def result_of(reply: bytes) -> str:
    """Return the first word of a reply, or for a binary one ``status`` and its number."""
    if reply[:1] == bytes((MAGIC_OF_REPLIES,)):
        return f"{_STATUS}{int.from_bytes(reply[6:8])}"
    words = reply[: reply.find(b"\n")].split(None, 1)
    return words[0].decode("ascii", "backslashreplace") if words else ""


def failed(result: str) -> bool:
    """Return whether a result is a failure of the server, rather than of the client."""
    if result.startswith(_STATUS):
        return int(result.removeprefix(_STATUS)) >= _FIRST_FAILURE
    return result == "SERVER_ERROR"
