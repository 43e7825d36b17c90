"""The commands of ``--dialect lite``: those of the text protocol, with a different hit reply."""

from memlite.protocol import replies
from memlite.protocol.handler import NO_SHORTCUTS
from memlite.server.execution.text_commands import TextCommands

__all__ = ["LiteCommands"]


class LiteCommands(TextCommands):
    """The lite dialect's commands, listed in `memlite.protocol.lite`."""

    __slots__ = ()

    shortcuts = NO_SHORTCUTS
    shows_stored_replies = False

    def try_get(self, line: bytes) -> bool:
        """Return False: the engine's stored replies are in memcached's format."""
        return False

    def get(self, keys: list[bytes]) -> None:
        """``get <key>``: the items without their flags."""
        fetch = self._engine.fetch
        for key in keys:
            item = fetch(key)
            if item is not None:
                self.out += (b"VALUE %b %d\r\n" % (key, item.size), item.value_line())
        self.out.append(replies.END)
