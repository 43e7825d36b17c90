"""The choice between routing methods."""

from collections.abc import Callable, Sequence
from typing import Final

from memlite.core.errors import ConfigError
from memlite.routing.hash_tag import HashTag
from memlite.routing.hashes import fnv1a_64_word, md5_word
from memlite.routing.jump import Jump
from memlite.routing.ketama import Ketama
from memlite.routing.rendezvous import Rendezvous
from memlite.routing.router import Member, Router

__all__ = ["HASHES", "make_router"]


def _ketama(members: Sequence[Member], tag: HashTag) -> Router:
    return Ketama(members, tag, md5_word)


def _ketama_fnv1a(members: Sequence[Member], tag: HashTag) -> Router:
    return Ketama(members, tag, fnv1a_64_word)


HASHES: Final[dict[str, Callable[[Sequence[Member], HashTag], Router]]] = {
    "ketama": _ketama,
    "ketama-fnv1a": _ketama_fnv1a,
    "rendezvous": Rendezvous,
    "jump": Jump,
}
"""The routing methods, by the names used in settings."""


def make_router(hash_name: str, members: Sequence[Member], hash_tag: str = "") -> Router:
    """Return a router.

    Args:
        hash_name: one of `HASHES`.
        members: the nodes.
        hash_tag: the characters around the part of a key that is hashed; see `HashTag`.

    Raises:
        ConfigError: an argument is invalid: an unknown hash, no nodes, two of the same name, a
            weight below 1.
    """
    make = HASHES.get(hash_name)
    if make is None:
        raise ConfigError(f"hash: must be one of {', '.join(HASHES)}, not {hash_name!r}")
    if not members:
        raise ConfigError("nodes: there must be at least one")
    names = set()
    for name, weight in members:
        if name in names:
            raise ConfigError(f"nodes: duplicate name {name!r}")
        names.add(name)
        if weight < 1:
            raise ConfigError(f"nodes: the weight of {name!r} must be at least 1, not {weight}")
    return make(members, HashTag(hash_tag))
