"""State that the workers of a server share besides their board: all items, or agreements."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memlite.config import Config

if TYPE_CHECKING:
    from memlite.backends.agreement import Agreement, SharedEpoch
    from memlite.memory.shared import Mapping
    from memlite.server.auth.shared_throttle import SharedThrottle

__all__ = ["Shared", "asks_store", "share"]

# The fraction of a near cache (one in so many) used to keep the copies of all workers coherent.
_AGREEMENT_SHARE: Final = 16


@dataclass(frozen=True, slots=True)
class Shared:
    """State created before the workers are forked.

    Attributes:
        mapping: all items; None if each worker asks the store.
        epoch: records flushes of the store; None if the workers share the mapping.
        agreement: keeps their near caches coherent; None without near caches.
        throttle: delays attempts to log in; None if clients need no password.
    """

    mapping: "Mapping | None" = None
    epoch: "SharedEpoch | None" = None
    agreement: "Agreement | None" = None
    throttle: "SharedThrottle | None" = None


def asks_store(config: Config) -> bool:
    """Return whether each of several workers can query the store directly."""
    if config.backend == "memory://":  # the most common case
        return False
    from memlite.backends.registry import REMOTE, parse_url

    return parse_url(config.backend).scheme in REMOTE


def share(config: Config, make_mapping: "Callable[[], Mapping]") -> Shared:
    """Return the state that the workers share.

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
