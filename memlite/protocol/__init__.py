"""The wire protocols, sans-IO: bytes in, handler calls out; replies in, bytes out.

Nothing here knows about sockets, clocks or event loops, so every case can be tested with bytes
alone.

This package exports the names of the text protocol. The other protocols have modules of their own
(`binary`, `lite`, …), which are imported when a client first speaks them.
"""

__all__ = ["Handler", "Limits", "TextParser"]

from memlite.protocol.handler import Handler
from memlite.protocol.limits import Limits
from memlite.protocol.text import TextParser
