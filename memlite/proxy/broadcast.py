"""A command for all nodes, sent as one request."""

from collections.abc import Callable, Sequence
from typing import Protocol

from memlite.protocol import replies
from memlite.proxy.answers import Answer
from memlite.proxy.node import Receiver

__all__ = ["Broadcast", "ask_all"]


class _Target(Protocol):
    def send(self, request: bytes, receiver: Receiver) -> None: ...


class Broadcast:
    """Stands for several targets.

    Args:
        targets: the targets of each command.
    """

    def __init__(self, targets: Sequence[_Target]) -> None:
        self._targets = targets

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a command. Its reply is the first that is not ``OK``, else ``OK``."""

        def answered(reply: bytes) -> None:
            if reply.startswith(b"SERVER_ERROR "):
                receiver.fail(reply)
            else:
                receiver.answer(reply)

        ask_all(self._targets, request, answered)


def ask_all(targets: Sequence[_Target], request: bytes, then: Callable[[bytes], None]) -> None:
    """Send a command to all targets.

    Args:
        targets: the targets, at least one.
        request: the command.
        then: called with the first reply that is not ``OK``, else with ``OK``, once all have
            answered.
    """
    missing = len(targets)
    bad = b""

    def take(reply: bytes, failed: bool) -> None:
        nonlocal missing, bad
        if failed or reply != replies.OK:
            bad = bad or reply
        missing -= 1
        if not missing:
            then(bad or replies.OK)

    for target in targets:
        target.send(request, Answer(take))
