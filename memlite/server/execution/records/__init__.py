"""Carries out commands in C on a shared table; see `memlite.server.execution.runner`."""

import logging
from typing import Any, Final, cast

from memlite.core.build import extension
from memlite.engine.shared_plain import PlainSharedEngine
from memlite.memory import Part
from memlite.server.execution.runner import VERSION, BinaryFallback, Runner, text_fallback
from memlite.server.execution.shared_text import SharedTextCommands

__all__ = ["NATIVE", "make_shared_runner"]

_log = logging.getLogger(__name__)

NATIVE: Final[Any] = extension("memlite.server.execution.records._native", VERSION)
"""The module in C; None if it is not used."""


def make_shared_runner(engine: PlainSharedEngine, commands_per_read: int) -> Runner | None:
    """Return a runner of commands on an engine's table; None unless both are in C.

    Args:
        engine: the engine that has the table.
        commands_per_read: as in `memlite.protocol.Limits`.
    """
    table = engine.table_in_c
    if NATIVE is None or table is None:
        return None
    replies: list[Part] = []
    # As in `make_runner`, shortcuts use neither the admin nor the client.
    text = SharedTextCommands(engine, cast("Any", None), cast("Any", None), replies)
    counterparts = text_fallback(text), BinaryFallback(engine, replies)
    try:
        runner: Runner = NATIVE.Runner(engine, table, *counterparts, replies, commands_per_read)
    except (AttributeError, NotImplementedError) as error:
        _log.warning("cannot run commands in C: %s", error)
        return None
    return runner
