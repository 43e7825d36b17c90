"""The wire, sans-IO: bytes in, calls on a handler out; replies in, bytes out.

Nothing here knows sockets, clocks or event loops, so every case can be tested with bytes alone.

The text protocol's names are here. The others are in their modules (`binary`, `lite`, …), which are
not imported before somebody speaks them.
"""

__all__ = ["Handler", "Limits", "TextParser"]

from memlite.protocol.handler import Handler
from memlite.protocol.limits import Limits
from memlite.protocol.text import TextParser
