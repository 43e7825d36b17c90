"""The magic bytes of the binary protocol, which the other parsers use to recognise it."""

from typing import Final

__all__ = ["MAGIC", "MAGIC_OF_REPLIES"]

MAGIC: Final = 0x80
"""The first byte of a request; no text command starts with it."""

MAGIC_OF_REPLIES: Final = 0x81
