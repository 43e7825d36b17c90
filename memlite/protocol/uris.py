"""Keys as URIs have them, for lines whose words end at a space."""

from urllib.parse import quote_from_bytes

__all__ = ["uri_encoded"]


def uri_encoded(key: bytes) -> str:
    """Return a key as ``watch``, ``metadump`` and ``stats hotkeys`` show it: "a b" is ``a%20b``."""
    return quote_from_bytes(key, safe="")
