"""Histories as clients observe them: commands, when they began and ended, and their results."""

import math
from dataclasses import dataclass
from typing import Final

__all__ = ["EVERY_KEY", "NEVER", "Operation", "Result"]

NEVER: Final = math.inf
"""The return time of an operation that may still be carried out."""
EVERY_KEY: Final = b""
"""The key of ``flush_all``."""


@dataclass(frozen=True, slots=True)
class Result:
    """The reply to a command.

    Attributes:
        word: the reply's word, such as ``STORED``; ``HIT`` and ``MISS`` for retrievals, ``NUMBER``
            for a number.
        value: the value that was shown; the new number for ``incr``.
        unique: the cas unique that was shown.
    """

    word: str
    value: bytes | None = None
    unique: int | None = None

    def __str__(self) -> str:
        shown = [self.word]
        shown += [_short(self.value)] if self.value is not None else []
        shown += [f"unique {self.unique}"] if self.unique is not None else []
        return " ".join(shown)


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One command of one client.

    Commands that failed without effect and retrievals that failed are not operations.

    Attributes:
        client: the client that sent it; a client sends one command at a time.
        name: the command.
        key: the key of the item; `EVERY_KEY` for all items.
        invoked: when it was sent, in seconds.
        returned: when its reply arrived. Without one, when it could no longer be carried out;
            `NEVER` if it may take effect at any time.
        result: the reply; None if the command may or may not have been carried out.
        value: the value to store or append; the number to add.
        unique: the cas unique to compare.
    """

    client: str
    name: str
    key: bytes
    invoked: float
    returned: float
    result: Result | None
    value: bytes = b""
    unique: int = 0

    def __str__(self) -> str:
        words = [self.name]
        words += [_short(self.value)] if self.value else []
        words += [f"unique {self.unique}"] if self.name == "cas" else []
        outcome = "?" if self.result is None else str(self.result)
        end = "never   " if self.returned == NEVER else f"{self.returned:8.4f}"
        return f"{self.invoked:8.4f} – {end} {self.client:>12}: {' '.join(words)} → {outcome}"


def _short(value: bytes) -> str:
    text = value.decode(errors="backslashreplace")
    return text if len(text) <= 60 else f"…{text[-60:]}"
