"""Google Cloud Storage's errors: a status, a reason and a message, worded like the API's.

The reasons are listed at https://cloud.google.com/storage/docs/json_api/v1/status-codes.
"""

from memlite.core.errors import MemliteError

__all__ = ["GcsError"]

_CONDITION = "At least one of the pre-conditions you specified did not hold."


class GcsError(MemliteError):
    """A request failed.

    Attributes:
        status: the HTTP status.
        reason: the JSON API's reason, such as ``conditionNotMet``.
        message: a human-readable message.
        domain: ``global`` or ``usageLimits``.
        location: the part of the request that caused the error: ``("header", "If-Match")``,
            ``("parameter", "name")`` or None.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        domain: str = "global",
        location: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.domain = domain
        self.location = location

    @classmethod
    def invalid(cls, message: str, parameter: str | None = None) -> "GcsError":
        """Return a 400 for an invalid request."""
        location = ("parameter", parameter) if parameter else None
        return cls(400, "invalid", message, location=location)

    @classmethod
    def required(cls, parameter: str) -> "GcsError":
        """Return a 400 for a missing parameter."""
        message = f"Required parameter: {parameter}"
        return cls(400, "required", message, location=("parameter", parameter))

    @classmethod
    def no_bucket(cls) -> "GcsError":
        """Return a 404 for a bucket that does not exist."""
        return cls(404, "notFound", "The specified bucket does not exist.")

    @classmethod
    def no_object(cls, bucket: str, name: str) -> "GcsError":
        """Return a 404 for an object, or a generation of it, that does not exist."""
        return cls(404, "notFound", f"No such object: {bucket}/{name}")

    @classmethod
    def unknown_path(cls) -> "GcsError":
        """Return a 404 for an unknown path."""
        return cls(404, "notFound", "Not Found")

    @classmethod
    def condition_not_met(cls) -> "GcsError":
        """Return a 412 for a failed precondition."""
        return cls(412, "conditionNotMet", _CONDITION, location=("header", "If-Match"))

    @classmethod
    def not_modified(cls) -> "GcsError":
        """Return a 304 for a read whose "not match" precondition failed."""
        return cls(304, "notModified", "Not Modified")

    @classmethod
    def rate_limited(cls, bucket: str, name: str) -> "GcsError":
        """Return a 429 for an object that is written more often than GCS allows."""
        return cls(
            429,
            "rateLimitExceeded",
            f"The object {bucket}/{name} exceeded the rate limit for object mutation operations "
            "(create, update, and delete). Please reduce your request rate. "
            "See https://cloud.google.com/storage/docs/gcs429.",
            domain="usageLimits",
        )

    @classmethod
    def not_emulated(cls, feature: str) -> "GcsError":
        """Return a 501 for a feature that the emulator does not support."""
        return cls(501, "notImplemented", f"The memlite GCS emulator does not support {feature}.")
