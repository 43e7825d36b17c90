"""What the workers of a server share besides their board: all items, or what they agree on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memlite.backends.registry import REMOTE, parse_url
from memlite.config import Config

if TYPE_CHECKING:
    from memlite.backends.agreement import Agreement, SharedEpoch
    from memlite.memory.shared import Mapping

__all__ = ["Shared", "asks_store", "share_store"]

# Part of a near cache that keeps the copies of all workers coherent.
_AGREEMENT_SHARE: Final = 16


@dataclass(frozen=True, slots=True)
class Shared:
    """What is made before workers are forked.

    Attributes:
        mapping: all items; None if each worker asks the store.
        epoch: what workers know of flushes of the store; None without.
        agreement: what their near caches agree on; None without.
    """

    mapping: "Mapping | None" = None
    epoch: "SharedEpoch | None" = None
    agreement: "Agreement | None" = None


def asks_store(config: Config) -> bool:
    """Return whether the store is one that each of several workers can ask itself."""
    return parse_url(config.backend).scheme in REMOTE


def share_store(config: Config) -> Shared:
    """Return what workers share that ask one store."""
    from memlite.backends.agreement import Agreement, SharedEpoch

    agreement = Agreement(config.near_cache // _AGREEMENT_SHARE) if config.near_cache else None
    return Shared(None, SharedEpoch(), agreement)
