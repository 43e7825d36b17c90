"""The first bytes of the binary protocol's packets, by which all others know them."""

from typing import Final

__all__ = ["MAGIC", "MAGIC_OF_REPLIES"]

MAGIC: Final = 0x80
"""The first byte of a request, with which no text begins."""

MAGIC_OF_REPLIES: Final = 0x81
