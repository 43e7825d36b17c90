"""Resending of requests that have waited their turn: their keys may have other targets by then."""

from collections.abc import Callable, Sequence
from typing import Protocol

from memlite.proxy.answers import Answer
from memlite.proxy.gutter_requests import keys_of, words_of
from memlite.proxy.held_parts import PARTS, TOO_MUCH
from memlite.proxy.node import Receiver

__all__ = ["Several", "Target", "send_again"]


class Target(Protocol):
    """The target of requests: a node, or an object that stands for it."""

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request; see `Node.send`."""


class Several:
    """Collects the replies to a retrieval that was split by keys.

    Args:
        keys: how many.
        receiver: takes the combined reply.
    """

    def __init__(self, keys: int, receiver: Receiver) -> None:
        self._receiver = receiver
        self._replies = [b""] * keys
        self._missing = keys
        self._error = b""
        self._held = 0  # bytes

    def taker(self, index: int) -> Callable[[bytes, bool], None]:
        """Return the function that takes the reply to the request for one key."""

        def take(reply: bytes, failed: bool) -> None:
            self._missing -= 1
            if failed or not reply.startswith((b"VALUE ", b"END")):
                self._fail(reply)
            elif not self._error:
                self._replies[index] = reply
                if self._missing:
                    self._hold(len(reply))
            if not self._missing:
                self._answer()

        return take

    def _hold(self, size: int) -> None:
        if PARTS.hold(size):
            self._held += size
        else:
            self._fail(TOO_MUCH)

    def _fail(self, error: bytes) -> None:
        """Note an error, and release the parts: they are no longer needed."""
        self._error = self._error or error
        self._replies = [b""] * len(self._replies)
        self._release()

    def _release(self) -> None:
        PARTS.release(self._held)
        self._held = 0

    def _answer(self) -> None:
        self._release()
        if self._error:
            self._receiver.fail(self._error)
            return
        parts = [reply.removesuffix(b"END\r\n") for reply in self._replies]
        self._receiver.answer(b"".join(parts) + b"END\r\n")


def send_again(request: bytes, receiver: Receiver, find: Callable[[bytes], Target]) -> None:
    """Send a request to the present targets of its keys, which may differ.

    Args:
        request: a request with keys.
        receiver: takes the reply.
        find: returns the target for a key.
    """
    keys: Sequence[bytes] = keys_of(request)
    targets = [find(key) for key in keys]
    if all(target is targets[0] for target in targets):
        targets[0].send(request, receiver)
        return
    whole, words = Several(len(keys), receiver), words_of(request)
    head = words[: len(words) - len(keys)]
    for index, key in enumerate(keys):
        one = b" ".join([*head, key]) + b"\r\n"
        targets[index].send(one, Answer(whole.taker(index), reads=receiver.reads))
