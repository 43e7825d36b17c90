"""What the workers of a server share besides their board: all items, or what they agree on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memlite.config import Config

if TYPE_CHECKING:
    from memlite.backends.agreement import Agreement, SharedEpoch
    from memlite.memory.shared import Mapping
    from memlite.server.auth.shared_throttle import SharedThrottle

__all__ = ["Shared", "asks_store", "share"]

# Part of a near cache that keeps the copies of all workers coherent.
_AGREEMENT_SHARE: Final = 16


@dataclass(frozen=True, slots=True)
class Shared:
    """What is made before workers are forked.

    Attributes:
        mapping: all items; None if each worker asks the store.
        epoch: what workers know of flushes of the store; None without.
        agreement: what their near caches agree on; None without.
        throttle: delays attempts to log in; None if nobody has to.
    """

    mapping: "Mapping | None" = None
    epoch: "SharedEpoch | None" = None
    agreement: "Agreement | None" = None
    throttle: "SharedThrottle | None" = None


def asks_store(config: Config) -> bool:
    """Return whether the store is one that each of several workers can ask itself."""
    if config.backend == "memory://":  # which most have
        return False
    from memlite.backends.registry import REMOTE, parse_url

    return parse_url(config.backend).scheme in REMOTE


def share(config: Config, make_mapping: "Callable[[], Mapping]") -> Shared:
    """Return what the workers share.

    Args:
        config: the settings.
        make_mapping: makes the mapping for the items, unless each worker asks the store.
    """
    throttle = None
    if config.asks_for_password:
        from memlite.server.auth.shared_throttle import SharedThrottle

        throttle = SharedThrottle()
    if not asks_store(config):
        return Shared(make_mapping(), throttle=throttle)
    from memlite.backends.agreement import Agreement, SharedEpoch

    agreement = Agreement(config.near_cache // _AGREEMENT_SHARE) if config.near_cache else None
    return Shared(None, SharedEpoch(), agreement, throttle)
