"""The wire, sans-IO: bytes in, calls on a handler out; replies in, bytes out.

Nothing here knows sockets, clocks or event loops, so every case can be tested with bytes alone.
"""

__all__ = ["BinaryHandler", "BinaryParser", "Handler", "Limits", "LiteParser", "TextParser"]

from memlite.protocol.binary import BinaryParser
from memlite.protocol.handler import BinaryHandler, Handler
from memlite.protocol.limits import Limits
from memlite.protocol.lite import LiteParser
from memlite.protocol.text import TextParser
