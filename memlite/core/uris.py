"""Keys percent-encoded as in URIs, for output whose fields are separated by spaces."""

from urllib.parse import quote_from_bytes

__all__ = ["uri_encoded"]


def uri_encoded(key: bytes) -> str:
    """Return a key in the form of ``watch`` and ``metadump``: ``a%20b`` for "a b"."""
    return quote_from_bytes(key, safe="")
