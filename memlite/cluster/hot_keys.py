"""Hot keys, whose items have copies on all nodes."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from memlite.core.errors import ConfigError
from memlite.core.uris import uri_encoded

__all__ = ["MAX_HOT_KEYS", "HotKey", "demote", "parse_hot_keys", "promote", "remove"]

MAX_HOT_KEYS: Final = 64
_MAX_KEY_LENGTH: Final = 250
_LONGEST_IN_BASE64: Final = 186


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that is promoted, or was until recently.

    Attributes:
        key: the key.
        epoch: the cluster's epoch when the key was promoted or demoted; 0 if it is from a file or
            an option.
        demoted: whether it is read from its own node again. Changes are still made as for a
            promoted key, as long as other proxies may not know of the
            demotion.
        automatic: whether a proxy promoted it, and may demote it.
    """

    key: bytes
    epoch: int = 0
    demoted: bool = False
    automatic: bool = False

    def encode(self) -> dict[str, Any]:
        """Return the fields in a form that JSON can represent."""
        key = b64encode(self.key).decode()
        return {
            "key": key,
            "epoch": self.epoch,
            "demoted": self.demoted,
            "automatic": self.automatic,
        }

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> "HotKey":
        """Parse the result of `encode`.

        Raises:
            ValueError: the fields are invalid.
        """
        key, epoch = fields["key"], fields["epoch"]
        demoted, automatic = fields["demoted"], fields["automatic"]
        kinds = isinstance(key, str), isinstance(epoch, int), isinstance(demoted, bool)
        if not all(kinds) or not isinstance(automatic, bool):
            raise ValueError("hot_keys is invalid")
        return cls(_checked(b64decode(key, validate=True)), epoch, demoted, automatic)


def parse_hot_keys(keys: Iterable[bytes]) -> tuple[HotKey, ...]:
    """Return the hot keys of a file or an option, without duplicates.

    Raises:
        ConfigError: no client could send one of them, or there are too many.
    """
    found = tuple(HotKey(_checked(key)) for key in dict.fromkeys(keys))
    if len(found) > MAX_HOT_KEYS:
        raise ConfigError(f"{len(found)} keys exceed the limit of {MAX_HOT_KEYS}")
    return found


def promote(
    present: Sequence[HotKey], keys: Iterable[bytes], epoch: int, *, automatic: bool = False
) -> tuple[HotKey, ...]:
    """Return the hot keys after promoting further keys.

    Args:
        present: the present hot keys.
        keys: the keys to promote.
        epoch: see `HotKey`.
        automatic: see `HotKey`.

    Raises:
        ConfigError: there would be too many.
    """
    wanted = dict.fromkeys(keys)
    known = {one.key for one in present if not one.demoted}
    new = [HotKey(_checked(key), epoch, automatic=automatic) for key in wanted if key not in known]
    again = {one.key for one in new}
    # Keys promoted by hand are not demoted automatically.
    kept = (
        replace(one, automatic=one.automatic and (automatic or one.key not in wanted))
        for one in present
        if one.key not in again
    )
    changed = (*kept, *new)
    if new and len(changed) > MAX_HOT_KEYS:
        raise ConfigError(
            f"{len(changed)} hot keys, including those demoted in the last minute, exceed the "
            f"limit of {MAX_HOT_KEYS}"
        )
    return changed


def demote(present: Sequence[HotKey], keys: Iterable[bytes], epoch: int) -> tuple[HotKey, ...]:
    """Return the hot keys with some of them demoted."""
    gone = set(keys)
    return tuple(
        replace(one, epoch=epoch, demoted=True) if one.key in gone and not one.demoted else one
        for one in present
    )


def remove(present: Sequence[HotKey], over: Iterable[HotKey]) -> tuple[HotKey, ...]:
    """Return the hot keys without some demoted ones; keys promoted again stay."""
    gone = set(over)
    return tuple(one for one in present if one not in gone)


def _checked(key: bytes) -> bytes:
    """Return the key.

    Raises:
        ConfigError: it is too long for a command that changes copies.
    """
    odd = any(byte <= 32 or byte == 127 for byte in key)
    longest = _LONGEST_IN_BASE64 if odd else _MAX_KEY_LENGTH
    if not 0 < len(key) <= longest:
        kind = " with white space or control characters" if odd else ""
        raise ConfigError(f"a hot key{kind} must have 1 to {longest} bytes: {uri_encoded(key)!r}")
    return key
