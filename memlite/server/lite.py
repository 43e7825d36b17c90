"""The handlers of ``--dialect lite``: the text protocol's, but for what a hit looks like."""

from memlite.protocol import replies
from memlite.server.commands import TextCommands
from memlite.server.deferred_text import DeferredText

__all__ = ["DeferredLite", "LiteCommands"]


class LiteCommands(TextCommands):
    """Answers a connection's commands at once; see `memlite.protocol.LiteParser` for which."""

    __slots__ = ()

    def hit(self, line: bytes) -> bool:
        """Return False: what the engine has ready is the other dialect's."""
        return False

    def get(self, keys: list[bytes]) -> None:
        """``get <key>``: the items without their flags."""
        fetch = self._engine.fetch
        for key in keys:
            item = fetch(key)
            if item is not None:
                self.out += (b"VALUE %b %d\r\n" % (key, item.size), item.value_line())
        self.out.append(replies.END)


class DeferredLite(DeferredText):
    """The same on a backend that must be asked."""

    commands = LiteCommands

    def hit(self, line: bytes) -> bool:
        """Return False; see `LiteCommands`."""
        return False

    def straight_hit(self, line: bytes) -> bytes | None:
        """Return None; see `LiteCommands`."""
        return None
