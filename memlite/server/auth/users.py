"""The users of the server, loaded from a file of names and passwords (``-Y``)."""

import hashlib
import hmac
import logging
import secrets
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from memlite.config import Config
from memlite.core.errors import StartError
from memlite.core.files import PATIENCE, read_whole

__all__ = ["MAX_FILE_SIZE", "Users", "users_of"]

_log = logging.getLogger("memlite")

MAX_FILE_SIZE = 64 * 1024
"""The largest users file in bytes, enough for some two thousand users."""


_PWDB_VARIABLE = "MEMCACHED_SASL_PWDB"
_CYRUS_VARIABLE = "SASL_CONF_PATH"


def users_of(config: Config, environment: Mapping[str, str]) -> "Users":
    """Load the users of a server whose settings require authentication.

    Args:
        config: the settings.
        environment: the process's environment, which may name the file.

    Raises:
        StartError: no file is given, or it cannot be used.
    """
    if config.auth_file is not None:
        return Users(config.auth_file)
    path = environment.get(_PWDB_VARIABLE)
    if path:
        return Users(path, _PWDB_VARIABLE)
    reason = f"name a users file with -Y (or {_PWDB_VARIABLE})"
    if environment.get(_CYRUS_VARIABLE):
        reason += f"; memlite cannot read the sasldb that {_CYRUS_VARIABLE} points to"
    raise StartError(f"-S: {reason}")


class Users:
    """The users in a file with ``user:password`` lines.

    Only keyed digests of the passwords are kept, under a key specific to this process.

    Args:
        path: the file's path, made absolute so that reloading works from any directory.
        option: the name of the setting, for messages.

    Raises:
        StartError: the file cannot be read or is malformed.
    """

    def __init__(self, path: str, option: str = "-Y") -> None:
        self._path = Path(path).absolute()
        self._label = f"{option}: {path}"
        self._key = secrets.token_bytes(hashlib.blake2b.MAX_KEY_SIZE)
        self._digests: Sequence[bytes] = ()
        self.load(PATIENCE)

    def load(self, patience: float = 0.0) -> None:
        """Load or reload the file. Clients that have authenticated stay connected.

        Args:
            patience: seconds to wait for the end of a pipe or the like; see `read_whole`.

        Raises:
            StartError: the file cannot be used; any old users stay in effect.
        """
        try:
            text, mode = read_whole(self._path, MAX_FILE_SIZE, patience)
        except OSError as error:
            raise StartError(f"{self._label}: {error.strerror}") from None
        self._digests = [self._digest(*pair) for pair in self._parse(text)]
        if mode & stat.S_IROTH and sys.platform != "win32":
            _log.warning(
                "%s: readable by every user on this machine (mode %o); restrict it with chmod o-r",
                self._label,
                stat.S_IMODE(mode),
            )

    def _parse(self, text: bytes) -> list[tuple[bytes, bytes]]:
        pairs = []
        for number, line in enumerate(text.split(b"\n"), 1):
            # As in memcached, anything after a carriage return is ignored.
            line = line.partition(b"\r")[0]
            if not line:
                continue
            user, _, password = line.partition(b":")
            if not user or not password or b"\0" in line:
                # The message does not quote the line, which may contain a password.
                raise StartError(f"{self._label}: line {number} is not user:password")
            pairs.append((user, password))
        if not pairs:
            raise StartError(f"{self._label}: contains no users")
        return pairs

    def __len__(self) -> int:
        return len(self._digests)

    def check(self, user: bytes, password: bytes) -> bool:
        """Return whether the file contains this user with this password, in constant time.

        A user may be listed several times, for instance with an old and a new password.
        """
        wanted = self._digest(user, password)
        # A list rather than a generator: stopping early would leak a user's position by timing.
        return any([hmac.compare_digest(wanted, digest) for digest in self._digests])  # noqa: C419

    def _digest(self, user: bytes, password: bytes) -> bytes:
        return hashlib.blake2b(
            b"%d:%b%b" % (len(user), user, password), digest_size=32, key=self._key
        ).digest()
