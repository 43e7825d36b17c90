"""Google Cloud Storage's errors: a status, a reason and a message, in the API's own words.

The reasons are those of https://cloud.google.com/storage/docs/json_api/v1/status-codes.
"""

from memlite.errors import MemliteError

__all__ = ["GcsError"]

_CONDITION = "At least one of the pre-conditions you specified did not hold."


class GcsError(MemliteError):
    """A request was refused.

    Attributes:
        status: the HTTP status.
        reason: the JSON API's word for it, such as ``conditionNotMet``.
        message: what went wrong, for people.
        domain: ``global`` or ``usageLimits``.
        location: what in the request was at fault: ``("header", "If-Match")``,
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
        """Return a 400: the request says something wrong."""
        location = ("parameter", parameter) if parameter else None
        return cls(400, "invalid", message, location=location)

    @classmethod
    def required(cls, parameter: str) -> "GcsError":
        """Return a 400: the request lacks a parameter."""
        message = f"Required parameter: {parameter}"
        return cls(400, "required", message, location=("parameter", parameter))

    @classmethod
    def no_bucket(cls) -> "GcsError":
        """Return the 404 of a bucket that does not exist."""
        return cls(404, "notFound", "The specified bucket does not exist.")

    @classmethod
    def no_object(cls, bucket: str, name: str) -> "GcsError":
        """Return the 404 of an object, or a generation of it, that does not exist."""
        return cls(404, "notFound", f"No such object: {bucket}/{name}")

    @classmethod
    def no_page(cls) -> "GcsError":
        """Return the 404 of a path that leads nowhere."""
        return cls(404, "notFound", "Not Found")

    @classmethod
    def condition_not_met(cls) -> "GcsError":
        """Return the 412 of a precondition that does not hold."""
        return cls(412, "conditionNotMet", _CONDITION, location=("header", "If-Match"))

    @classmethod
    def not_modified(cls) -> "GcsError":
        """Return the 304 of a read whose "not match" precondition does not hold."""
        return cls(304, "notModified", "Not Modified")

    @classmethod
    def rate_limited(cls, bucket: str, name: str) -> "GcsError":
        """Return the 429 of an object written more often than GCS allows."""
        return cls(
            429,
            "rateLimitExceeded",
            f"The object {bucket}/{name} exceeded the rate limit for object mutation operations "
            "(create, update, and delete). Please reduce your request rate. "
            "See https://cloud.google.com/storage/docs/gcs429.",
            domain="usageLimits",
        )

    @classmethod
    def not_emulated(cls, what: str) -> "GcsError":
        """Return the 501 of something GCS may know and the emulator does not."""
        return cls(501, "notImplemented", f"The memlite GCS emulator does not know {what}.")
