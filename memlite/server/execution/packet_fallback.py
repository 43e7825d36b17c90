"""Carries out single binary packets that `memlite.server.execution.runner` passes on."""

from collections.abc import Callable
from struct import Struct
from typing import Final

from memlite.engine import MetaEngine
from memlite.memory import Part
from memlite.protocol.packets import HEADER
from memlite.server.execution.short_binary_commands import SHORTCUTS, ShortBinaryCommands

__all__ = ["packet_fallback"]

# Opcode, key length, extras length, total body length, opaque, cas unique.
_header: Final = Struct(">xBHBxxxIIQ").unpack_from


def packet_fallback(engine: MetaEngine, replies: list[Part]) -> Callable[[bytes, int], int]:
    """Return a function that carries out the packet at a position, if there is a shortcut for it.

    Args:
        engine: the engine that has the items.
        replies: receives the replies.

    Returns:
        The function. It takes complete packets with a key, and returns the position of the next
        packet, or 0 if nothing was done.
    """
    commands = ShortBinaryCommands(engine, replies)

    def carry_out(data: bytes, position: int) -> int:
        opcode, key_size, extras_size, body, opaque, cas = _header(data, position)
        shortcut = SHORTCUTS.get(opcode)
        extras_at = position + HEADER
        key_at = extras_at + extras_size
        value_at = key_at + key_size
        end = extras_at + body
        if shortcut is None:
            return 0
        extras, key, value = data[extras_at:key_at], data[key_at:value_at], data[value_at:end]
        done = shortcut(commands, opcode, opaque, cas, extras, key, value)
        return end if done else 0

    return carry_out
