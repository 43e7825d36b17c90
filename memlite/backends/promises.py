"""What the backends promise about acknowledged items: what they survive, and who may share them."""

from dataclasses import dataclass

__all__ = ["Promise", "promise_of"]


@dataclass(frozen=True, slots=True)
class Promise:
    """The promise of a backend.

    Attributes:
        survives_crash: whether items outlive the process, also one that is killed.
        survives_machine: whether they certainly outlive the machine and its disk.
        shared: whether several servers may use them at once.
    """

    survives_crash: bool
    survives_machine: bool
    shared: bool


_BUCKET = Promise(survives_crash=True, survives_machine=True, shared=True)
# A failover may lose what replicas had not received; see the reference.
_DISTRIBUTED = Promise(survives_crash=True, survives_machine=False, shared=True)
_PROMISES = {
    "memory": Promise(survives_crash=False, survives_machine=False, shared=False),
    "file": Promise(survives_crash=True, survives_machine=False, shared=False),
    "gs": _BUCKET,
    "gcs": _BUCKET,
    **dict.fromkeys(("valkey", "valkeys", "redis", "rediss"), _DISTRIBUTED),
}


def promise_of(scheme: str) -> Promise | None:
    """Return the promise of the built-in backend with this scheme; None for any other."""
    return _PROMISES.get(scheme)
