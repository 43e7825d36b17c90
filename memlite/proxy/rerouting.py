"""Rerouting of requests that have waited in the queue, to the present owners of their keys."""

from collections.abc import Sequence
from typing import Protocol

from memlite.protocol import replies
from memlite.proxy.broadcast import Broadcast
from memlite.proxy.gutter_requests import keys_of
from memlite.proxy.node import Receiver
from memlite.proxy.refusal import NO_NUL
from memlite.proxy.resend import Target, send_again

__all__ = ["Router", "rerouted"]


class Router(Protocol):
    """The part of a cluster that finds the target for a key."""

    @property
    def targets(self) -> Sequence[Target]:
        """The targets of a request for all nodes."""

    @property
    def whole_gets(self) -> Target | None:
        """The target of an unsplit get of several keys; None if such gets are split."""

    def node_of(self, key: bytes) -> Target:
        """Return the target for a key."""


def rerouted(
    router: Router, sends: Sequence[tuple[Target, bytes, Receiver]]
) -> Sequence[tuple[Target, bytes, Receiver]]:
    """Return the parts of a request, each with the present target for its keys.

    The parts of a request for all nodes become one: there may be more nodes than parts, or fewer.
    """
    found: list[tuple[Target, bytes, Receiver]] = []
    for target, data, receiver in sends:
        keys = keys_of(data)
        if target is NO_NUL:
            now: Target = target
        elif not keys:
            now = _Done() if found else Broadcast(router.targets)
        else:
            now = router.node_of(keys[0]) if len(keys) == 1 else _Keys(router)
        found.append((now, data, receiver))
    return found


class _Done:
    """Stands for the nodes that another part of a request has been sent to."""

    def send(self, _request: bytes, receiver: Receiver) -> None:
        receiver.answer(replies.OK)


class _Keys:
    """Stands for the nodes of several keys."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def send(self, request: bytes, receiver: Receiver) -> None:
        whole = self._router.whole_gets if request.startswith(b"get ") else None
        if whole is None:
            send_again(request, receiver, self._router.node_of)
        else:
            whole.send(request, receiver)
