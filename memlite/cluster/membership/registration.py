"""The registration of a node, in an object of its own."""

from dataclasses import asdict, dataclass, replace
from enum import Enum

from memlite.cluster.membership.encoding import DocumentError, check, decode, encode

__all__ = ["Registration", "Standing", "registration_name"]


def registration_name(node: str) -> str:
    """Return the name of the object that describes a node."""
    return f"node/{node}"


class Standing(Enum):
    """The status in a node's registration."""

    MEMBER = "member"
    """The node renews its lease."""
    LEFT = "left"
    """The node has left."""
    FENCED = "fenced"
    """The node's lease expired, and another member has fenced it."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The state of a node, as written by itself or, after its lease expired, by another member.

    Attributes:
        incarnation: as in `Entry`.
        sequence: rises with each renewal, so that no two contents are the same.
        address: as in `Entry`.
        standing: as above.
    """

    incarnation: int
    sequence: int
    address: str
    standing: Standing = Standing.MEMBER

    def next(self, standing: Standing = Standing.MEMBER) -> "Registration":
        """Return the next registration."""
        return replace(self, sequence=self.sequence + 1, standing=standing)

    def encode(self) -> bytes:
        """Return the object's content."""
        return encode({**asdict(self), "standing": self.standing.value})

    @classmethod
    def decode(cls, name: str, data: bytes) -> "Registration":
        """Parse the object of this name.

        Raises:
            DocumentError: the content is invalid.
        """
        try:
            fields = decode(data)
            standing = Standing(fields.pop("standing"))
            registration = cls(standing=standing, **fields)
            check(isinstance(registration.sequence, int), "sequence")
            check(isinstance(registration.incarnation, int), "incarnation")
        except (ValueError, TypeError, KeyError) as error:
            raise DocumentError(f"{name}: not a valid node registration: {error}") from None
        return registration
