"""Checks whether the replies to clients can result from executing one command at a time.

`history` describes what was observed, `register` what memcached's commands do to one item, and
`checker` searches for an order that explains a history. `clients` records histories of real
servers.
"""

from tests.support.linearizability.checker import Violation, check, check_each
from tests.support.linearizability.history import NEVER, Operation, Result

__all__ = ["NEVER", "Operation", "Result", "Violation", "check", "check_each"]
