"""Preconditions: a request is executed only if the object is in the state the client expects.

Reference: https://cloud.google.com/storage/docs/request-preconditions and the parameters of each
method of the JSON API.
"""

from dataclasses import dataclass
from typing import Protocol

from memlite.testing.gcs_emulator.errors import GcsError

__all__ = ["NO_PRECONDITIONS", "Preconditions", "Versioned"]


class Versioned(Protocol):
    """A bucket or object, with a generation and a metageneration."""

    @property
    def generation(self) -> int:
        """The version of the content."""

    @property
    def metageneration(self) -> int:
        """The version of the attributes."""


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The four preconditions of a request; None for those that are absent.

    Generation 0 means that there is no live object: a request that must match it is executed only
    if there is none, and a request that must not match it only if there is one.
    """

    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None
    metageneration_not_match: int | None = None

    def check(self, current: Versioned | None, *, reading: bool) -> None:
        """Check the preconditions against the live object.

        "Not match" preconditions fail if there is no live object, as documented for
        ``ifGenerationNotMatch``.

        Args:
            current: the live object; None if there is none.
            reading: whether the request is a read, for which a failed "not match" is a 304.

        Raises:
            GcsError: 412 or 304 for a failed precondition.
        """
        generation = current.generation if current else 0
        metageneration = current.metageneration if current else None
        if self.generation_match not in (None, generation):
            raise GcsError.condition_not_met()
        if self.metageneration_match not in (None, metageneration):
            raise GcsError.condition_not_met()
        if (self.generation_not_match is not None and self.generation_not_match == generation) or (
            self.metageneration_not_match is not None
            and self.metageneration_not_match == metageneration
        ):
            raise GcsError.not_modified() if reading else GcsError.condition_not_met()
        requires_object = (
            self.generation_not_match is not None or self.metageneration_not_match is not None
        )
        if current is None and requires_object:
            raise GcsError.condition_not_met()


NO_PRECONDITIONS = Preconditions()
