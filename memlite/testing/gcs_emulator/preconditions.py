"""Preconditions: a request proceeds only if the object is in the state the client expects.

Source of the rules: https://cloud.google.com/storage/docs/request-preconditions and the parameters
of each method in the JSON API's reference.
"""

from dataclasses import dataclass
from typing import Protocol

from memlite.testing.gcs_emulator.errors import GcsError

__all__ = ["NO_PRECONDITIONS", "Preconditions", "Versioned"]


class Versioned(Protocol):
    """What has a generation and a metageneration."""

    @property
    def generation(self) -> int:
        """The content's version."""

    @property
    def metageneration(self) -> int:
        """The attributes' version."""


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The four preconditions of a request; None for those it does not have.

    A generation of 0 stands for "no live object": matching it, the request proceeds only if there
    is none; not matching it, only if there is one.
    """

    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None
    metageneration_not_match: int | None = None

    def check(self, current: Versioned | None, *, reading: bool) -> None:
        """Compare with the live object, or None where there is none.

        "Not match" preconditions fail without a live object, as the reference says of
        ``ifGenerationNotMatch``.

        Args:
            current: the live object.
            reading: whether the request reads, which makes a failed "not match" a 304.

        Raises:
            GcsError: 412 or 304.
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
        absent_expected_present = (
            self.generation_not_match is not None or self.metageneration_not_match is not None
        )
        if current is None and absent_expected_present:
            raise GcsError.condition_not_met()


NO_PRECONDITIONS = Preconditions()
