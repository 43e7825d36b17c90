"""The log of slow commands (``--slow-log``)."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from memlite.core.clock import Clock

__all__ = ["MAX_COMMANDS", "MAX_KEY_LENGTH", "SlowCommand", "SlowLog", "SlowStats"]

MAX_COMMANDS: Final = 128
"""How many of the last commands are kept."""

MAX_KEY_LENGTH: Final = 100
"""How many bytes of a key are kept."""


class SlowCommand(NamedTuple):
    """A slow command.

    Attributes:
        time: unix time at which its reply was ready, in seconds.
        nanoseconds: how long it took.
        command: its name, as clients write it.
        keys: how many keys it had.
        key: the first of them, cut at `MAX_KEY_LENGTH`; None without keys.
        cut: whether the key was cut.
        client: the client's address, such as ``tcp:127.0.0.1:50000``.
    """

    time: float
    nanoseconds: int
    command: str
    keys: int
    key: bytes | None
    cut: bool
    client: str


@dataclass(frozen=True, slots=True)
class SlowStats:
    """The slow log at one moment.

    Attributes:
        threshold: the duration from which a command counts as slow, in nanoseconds.
        count: how many slow commands there were.
        commands: the last of them, the newest first.
    """

    threshold: int
    count: int
    commands: tuple[SlowCommand, ...]


class SlowLog:
    """Keeps the last slow commands, and counts all of them.

    Args:
        threshold: the duration from which a command counts as slow, in nanoseconds.
        clock: the clock for the times of commands.

    Attributes:
        count: how many slow commands there were.
        threshold: as above.
        watcher: called with each slow command; None while they are not watched.
    """

    def __init__(self, threshold: int, clock: Clock) -> None:
        self.threshold: Final = threshold
        self.watcher: Callable[[SlowCommand], None] | None = None
        self._clock = clock
        self._last: deque[SlowCommand] = deque(maxlen=MAX_COMMANDS)
        self.count = 0

    def record(self, command: str, keys: Sequence[bytes], nanoseconds: int, client: str) -> None:
        """Log a command that took at least `threshold`.

        Args:
            command: its name.
            keys: its keys.
            nanoseconds: how long it took.
            client: the client's address.
        """
        key = bytes(keys[0]) if keys else None
        slow = SlowCommand(
            self._clock.now(),
            nanoseconds,
            command,
            len(keys),
            None if key is None else key[:MAX_KEY_LENGTH],
            key is not None and len(key) > MAX_KEY_LENGTH,
            client,
        )
        self.count += 1
        self._last.append(slow)
        if self.watcher is not None:
            self.watcher(slow)

    def stats(self) -> SlowStats:
        """Return the present state of the log."""
        return SlowStats(self.threshold, self.count, tuple(reversed(self._last)))

    def merged(self, commands: Iterable[tuple[Any, ...]], count: int) -> SlowStats:
        """Return the merged logs of several processes.

        Args:
            commands: the fields of their last slow commands.
            count: how many slow commands there were.
        """
        found = sorted(map(SlowCommand._make, commands), key=lambda one: one.time, reverse=True)
        return SlowStats(self.threshold, count, tuple(found[:MAX_COMMANDS]))

    def clear(self) -> None:
        """Start from zero (``stats reset``)."""
        self.count = 0
        self._last.clear()
