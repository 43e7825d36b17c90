"""The binary protocol's command table: a row for each kind of request.

The commands of a row differ by their opcode.
"""

from typing import Final

from memlite.protocol.commands import Access, Arguments, Command, no_keys, request_key
from memlite.protocol.packets import BinaryRequest, Opcode

__all__ = [
    "ADMIN",
    "COMMANDS",
    "COUNT",
    "DELETE",
    "GET",
    "REJECT",
    "STORE",
    "TOO_LARGE",
    "TOUCH",
]

_SETS: Final = frozenset((int(Opcode.SET), int(Opcode.SETQ)))
# These neither read nor change anything, so they need not run alone. That matters for NOOP, which
# ends each multiget.
_STATELESS: Final = frozenset(map(int, (Opcode.NOOP, Opcode.VERSION, Opcode.QUIT, Opcode.QUITQ)))


def _access_of_store(arguments: Arguments) -> Access:
    request: BinaryRequest = arguments[0]
    return Access.BLIND if request.opcode in _SETS and not request.cas else Access.CHANGE


def _access_of_admin(arguments: Arguments) -> Access:
    request: BinaryRequest = arguments[0]
    return Access.BLIND if request.opcode in _STATELESS else Access.ALONE


GET: Final = Command("binary_get", "GET, GETQ, GETK, GETKQ", "get", Access.CACHED, request_key)
"""A near cache may answer: a stale cas unique only makes a later store fail."""
TOUCH: Final = Command("binary_touch", "TOUCH, GAT, GATQ, GATK, GATKQ", "touch", keys=request_key)
STORE: Final = Command(
    "binary_store",
    "SET, SETQ, ADD, ADDQ, REPLACE, REPLACEQ, APPEND, APPENDQ, PREPEND, PREPENDQ",
    "store",
    _access_of_store,
    request_key,
)
DELETE: Final = Command("binary_delete", "DELETE, DELETEQ", "delete", keys=request_key)
COUNT: Final = Command(
    "binary_count",
    "INCREMENT, INCREMENTQ, DECREMENT, DECREMENTQ",
    "arithmetic",
    keys=request_key,
)
ADMIN: Final = Command(
    "binary_admin",
    "STAT, FLUSH, FLUSHQ, VERBOSITY, VERSION, NOOP, QUIT, QUITQ",
    "other",
    _access_of_admin,
    no_keys,
)
TOO_LARGE: Final = Command("binary_too_large", "", "other", Access.BLIND, request_key)
"""A store whose value exceeds the item size limit."""
REJECT: Final = Command("binary_reject", "", "other", Access.BLIND, no_keys)
"""A malformed or unknown command, answered with an error status."""

COMMANDS: Final = (GET, TOUCH, STORE, DELETE, COUNT, ADMIN)
"""Every command; its syntax lists the opcodes."""
