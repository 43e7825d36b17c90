"""The text protocol's command table: a row for each classic and meta command.

Source: memcached's ``doc/protocol.txt``.
"""

from typing import Final

from memlite.protocol.commands import (
    QUIT,
    Access,
    Arguments,
    Command,
    first_keys,
    no_keys,
    request_key,
    second_key,
    second_keys,
)
from memlite.protocol.meta import MetaRequest

__all__ = [
    "ADMIN",
    "BAD_CHUNK",
    "BY_WORD",
    "COMMANDS",
    "GET",
    "REJECT",
    "SET",
    "SET_FRAMED",
    "TOO_LARGE",
]

_STORE: Final = "<key> <flags> <exptime> <bytes>"
# The modes of ms that store unconditionally: none given, or S.
_UNCONDITIONAL_MODES: Final = (0, ord("S"))


def _access_of_mg(arguments: Arguments) -> Access:
    request: MetaRequest = arguments[0]
    if request.touch is not None:
        return Access.CHANGE
    return Access.CURRENT_OR_CHANGE if request.unique_asked else Access.CACHED_OR_CHANGE


def _access_of_ms(arguments: Arguments) -> Access:
    request: MetaRequest = arguments[0]
    blind = request.mode in _UNCONDITIONAL_MODES and request.compare is None
    # With c the reply shows a cas unique, which does not exist yet if the write is deferred.
    return Access.BLIND if blind and not request.unique_asked else Access.CHANGE


GET: Final = Command("get", "get <key>*", "get", Access.CACHED, first_keys)
SET: Final = Command("set", f"set {_STORE} [noreply]", "store", Access.BLIND, noreply=True)
ADMIN: Final = Command("admin", "", "other", Access.ALONE, no_keys, noreply=True)
"""Any command without keys; the server has a table of them."""

# Pseudo-commands, which only the parser produces.
SET_FRAMED: Final = Command("set_framed", "", "store", Access.BLIND, noreply=True)
"""A set whose value is already in the form that get will send."""
TOO_LARGE: Final = Command("too_large", "", "other", Access.BLIND, second_key, noreply=True)
"""A storage command whose value exceeds the item size limit."""
BAD_CHUNK: Final = Command("bad_chunk", "", "other", Access.BLIND, noreply=True)
"""A storage command whose value does not match its declared length."""
REJECT: Final = Command("reject", "", "other", Access.BLIND, no_keys, noreply=True)
"""A malformed command, answered with an error line."""

COMMANDS: Final = (
    GET,
    Command("gets", "gets <key>*", "get", Access.CURRENT, first_keys),
    Command("gat", "gat <exptime> <key>*", "touch", keys=second_keys),
    Command("gats", "gats <exptime> <key>*", "touch", keys=second_keys),
    SET,
    Command("add", f"add {_STORE} [noreply]", "store", noreply=True),
    Command("replace", f"replace {_STORE} [noreply]", "store", noreply=True),
    Command("append", f"append {_STORE} [noreply]", "store", noreply=True),
    Command("prepend", f"prepend {_STORE} [noreply]", "store", noreply=True),
    Command("cas", f"cas {_STORE} <cas unique> [noreply]", "store", noreply=True),
    Command("delete", "delete <key> [noreply]", "delete", noreply=True),
    Command("incr", "incr <key> <value> [noreply]", "arithmetic", noreply=True),
    Command("decr", "decr <key> <value> [noreply]", "arithmetic", noreply=True),
    Command("touch", "touch <key> <exptime> [noreply]", "touch", noreply=True),
    Command("meta_get", "mg <key> <flags>*", "get", _access_of_mg, request_key),
    Command("meta_set", "ms <key> <datalen> <flags>*", "store", _access_of_ms, request_key),
    Command("meta_delete", "md <key> <flags>*", "delete", keys=request_key),
    Command("meta_count", "ma <key> <flags>*", "arithmetic", keys=request_key),
    Command("meta_debug", "me <key> [<flag>]", "other", Access.CURRENT, request_key),
    Command("meta_noop", "mn", "other", Access.BLIND, no_keys),
    QUIT,
)
"""Every command with keys, mn and quit."""

BY_WORD: Final = {command.syntax.partition(" ")[0].encode(): command for command in COMMANDS}
"""The commands by the first word of their line."""
