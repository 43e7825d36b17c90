"""The backends' promises for acknowledged items: durability, and sharing between servers."""

from dataclasses import dataclass

__all__ = ["Promise", "promise_of"]


@dataclass(frozen=True, slots=True)
class Promise:
    """A backend's promise.

    Attributes:
        survives_crash: whether items outlive the process, even if it is killed.
        survives_machine: whether they are certain to outlive the machine and its disk.
        shared: whether several servers may use them at once.
    """

    survives_crash: bool
    survives_machine: bool
    shared: bool


_BUCKET = Promise(survives_crash=True, survives_machine=True, shared=True)
# A failover may lose items that replicas had not received; see the reference.
_DISTRIBUTED = Promise(survives_crash=True, survives_machine=False, shared=True)
_PROMISES = {
    "memory": Promise(survives_crash=False, survives_machine=False, shared=False),
    "file": Promise(survives_crash=True, survives_machine=False, shared=False),
    "gs": _BUCKET,
    "gcs": _BUCKET,
    **dict.fromkeys(("valkey", "valkeys", "redis", "rediss"), _DISTRIBUTED),
}


def promise_of(scheme: str) -> Promise | None:
    """Return the promise of the built-in backend with this scheme; None for other schemes."""
    return _PROMISES.get(scheme)
