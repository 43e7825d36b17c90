"""Commands that took long (``--slow-log``)."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from memlite.core.clock import Clock

__all__ = ["MAX_COMMANDS", "MAX_KEY_LENGTH", "SlowCommand", "SlowLog", "SlowStats"]

MAX_COMMANDS: Final = 128
"""How many commands are kept: the last ones."""

MAX_KEY_LENGTH: Final = 100
"""How many bytes of a key are kept."""


class SlowCommand(NamedTuple):
    """A command that took long.

    Attributes:
        time: unix time at which its reply was ready, in seconds.
        nanoseconds: how long it took.
        command: its name, as clients write it.
        keys: how many keys it had.
        key: the first of them, without what exceeds `MAX_KEY_LENGTH`; None without keys.
        cut: whether that is only the beginning of the key.
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
        threshold: nanoseconds from which on a command is slow.
        count: how many slow commands there were.
        commands: the last of them, the newest first.
    """

    threshold: int
    count: int
    commands: tuple[SlowCommand, ...]


class SlowLog:
    """Keeps the last slow commands, and counts all of them.

    Args:
        threshold: nanoseconds from which on a command is slow.
        clock: tells the time of a command.

    Attributes:
        count: how many there were.
        threshold: as above.
        watcher: is given each slow command; None while nobody watches.
    """

    def __init__(self, threshold: int, clock: Clock) -> None:
        self.threshold: Final = threshold
        self.watcher: Callable[[SlowCommand], None] | None = None
        self._clock = clock
        self._last: deque[SlowCommand] = deque(maxlen=MAX_COMMANDS)
        self.count = 0

    def record(self, command: str, keys: Sequence[bytes], nanoseconds: int, client: str) -> None:
        """Take a command that took at least `threshold`.

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
        """Return what there is by now."""
        return SlowStats(self.threshold, self.count, tuple(reversed(self._last)))

    def merged(self, commands: Iterable[tuple[Any, ...]], count: int) -> SlowStats:
        """Return what several processes have logged.

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
