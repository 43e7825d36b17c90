"""Who may use the server: a file of users and passwords (``-Y``)."""

import hashlib
import hmac
import logging
import os
import secrets
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from memlite.config import Config
from memlite.errors import StartError

__all__ = ["FILE_LIMIT", "Users", "users_of"]

_log = logging.getLogger("memlite")

FILE_LIMIT = 64 * 1024
"""Bytes a users file may have; some two thousand users."""


_PWDB_VARIABLE = "MEMCACHED_SASL_PWDB"
_CYRUS_VARIABLE = "SASL_CONF_PATH"


def users_of(config: Config, environment: Mapping[str, str]) -> "Users":
    """Return who may use the server by the settings, which ask for passwords.

    Raises:
        StartError: the file they name cannot be used, or none is named.
    """
    if config.auth_file is not None:
        return Users(config.auth_file)
    path = environment.get(_PWDB_VARIABLE)
    if path:
        return Users(path, _PWDB_VARIABLE)
    reason = f"name a users file with -Y (or {_PWDB_VARIABLE})"
    if environment.get(_CYRUS_VARIABLE):
        reason += f"; memlite cannot read the sasldb that {_CYRUS_VARIABLE} leads to"
    raise StartError(f"-S: {reason}")


class Users:
    """The users of a file with a ``user:password`` in each line.

    Of the passwords only digests are kept, under a key of this process.

    Args:
        path: the file's, to be read again from whatever directory.
        option: what to call it in messages.

    Raises:
        StartError: the file cannot be read, or not understood.
    """

    def __init__(self, path: str, option: str = "-Y") -> None:
        self._path = Path(path).absolute()
        self._label = f"{option}: {path}"
        self._key = secrets.token_bytes(hashlib.blake2b.MAX_KEY_SIZE)
        self._digests: Sequence[bytes] = ()
        self.load()

    def load(self) -> None:
        """Read the file, again perhaps: those who are connected stay so.

        Raises:
            StartError: that cannot be done; the users are those there were.
        """
        try:
            with self._path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(FILE_LIMIT + 1)
        except OSError as error:
            raise StartError(f"{self._label}: {error.strerror}") from None
        if len(text) > FILE_LIMIT:
            raise StartError(f"{self._label}: larger than {FILE_LIMIT} bytes")
        self._digests = [self._digest(*pair) for pair in self._parse(text)]
        if mode & stat.S_IROTH and sys.platform != "win32":
            _log.warning(
                "%s: everybody on this machine can read it (mode %o); chmod o-r would end that",
                self._label,
                stat.S_IMODE(mode),
            )

    def _parse(self, text: bytes) -> list[tuple[bytes, bytes]]:
        pairs = []
        for number, line in enumerate(text.split(b"\n"), 1):
            # As memcached reads it: what stands behind a carriage return is nobody's.
            line = line.partition(b"\r")[0]
            if not line:
                continue
            user, _, password = line.partition(b":")
            if not user or not password or b"\0" in line:
                # Not a word of what it says: it may be a password.
                raise StartError(f"{self._label}: line {number} is not user:password")
            pairs.append((user, password))
        if not pairs:
            raise StartError(f"{self._label}: no user in it")
        return pairs

    def __len__(self) -> int:
        return len(self._digests)

    def check(self, user: bytes, password: bytes) -> bool:
        """Return whether the file has this user with this password.

        A user may stand there several times, with an old and a new password. It takes as long for
        one who is unknown, and whatever is wrong with the password.
        """
        asked = self._digest(user, password)
        # A list, not a generator, which would tell by its time how far down a user stands.
        return any([hmac.compare_digest(asked, digest) for digest in self._digests])  # noqa: C419

    def _digest(self, user: bytes, password: bytes) -> bytes:
        return hashlib.blake2b(
            b"%d:%b%b" % (len(user), user, password), digest_size=32, key=self._key
        ).digest()
