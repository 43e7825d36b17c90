"""Users files, and logins in the text protocol with the expected replies."""

from pathlib import Path

__all__ = ["FAILURE", "LOGIN", "STORED", "UNAUTHENTICATED", "USERS", "write_users"]

USERS = b"foo:bar\nbaaaz:quux\n"
LOGIN = b"set x 0 0 7\r\nfoo bar\r\n"
STORED = b"STORED\r\n"
UNAUTHENTICATED = b"CLIENT_ERROR unauthenticated\r\n"
FAILURE = b"CLIENT_ERROR authentication failure\r\n"


def write_users(folder: Path, text: bytes) -> Path:
    """Write a users file that only its owner can read."""
    path = folder / "users"
    path.touch(0o600)
    path.write_bytes(text)
    return path
