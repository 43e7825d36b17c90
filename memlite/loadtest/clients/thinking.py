"""Measures the time from replies to the requests that follow them, in a closed loop."""

__all__ = ["Thinking"]


class Thinking:
    """Adds up a client's think times.

    `PlainConnection` does the same inline, which is cheaper than two calls per request.
    """

    __slots__ = ("_count", "_times")

    def __init__(self) -> None:
        # The number of replies since the last requests, and the sum of their times.
        self._count = 0
        self._times = 0

    def replied(self, now: int, count: int = 1) -> None:
        """Note the time of replies, in nanoseconds."""
        self._count += count
        self._times += now * count

    def ends(self, now: int, count: int) -> int:
        """Return the sum of the think times ended by new requests, in nanoseconds.

        Args:
            now: when they are sent.
            count: the number of requests. If it is not the number of replies, as at the beginning,
                at the end and after errors, the sum is unknown, and 0 is returned.
        """
        thought = now * count - self._times if count == self._count else 0
        self._count = self._times = 0
        return thought
