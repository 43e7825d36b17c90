"""The login of clients, from the command line and the environment."""

import os
from collections.abc import Mapping
from pathlib import Path

from memlite.client.login import TextLogin
from memlite.core.errors import ConfigError

__all__ = ["PASSWORD_VARIABLE", "read_login"]

PASSWORD_VARIABLE = "MEMLITE_BENCH_PASSWORD"  # noqa: S105 - its name


def read_login(
    user: str | None, file: Path | None, environment: Mapping[str, str] = os.environ
) -> TextLogin | None:
    """Return the login that the options and the environment describe; None for no login.

    Args:
        user: of ``--user``; None if it was not given.
        file: of ``--password-file``, whose first line is the password; None for the environment's.
        environment: holds the password under `PASSWORD_VARIABLE`.

    Raises:
        ConfigError: an option or the password is missing, or the file cannot be read.
    """
    if user is None:
        if file is not None:
            raise ConfigError("bench: --password-file is for --user")
        return None
    if not user or " " in user:
        raise ConfigError("bench: --user must be a name without spaces")
    if file is None:
        password = environment.get(PASSWORD_VARIABLE, "").encode("utf-8", "surrogateescape")
        source = PASSWORD_VARIABLE
    else:
        try:
            password = file.read_bytes().partition(b"\n")[0].removesuffix(b"\r")
        except OSError as error:
            raise ConfigError(f"bench: --password-file {file}: {error.strerror}") from None
        source = f"--password-file {file}"
    if not password:
        raise ConfigError(
            f"bench: --user {user}: no password in {source}"
            + ("" if file else "; set it, or give a --password-file")
        )
    return TextLogin(user.encode("utf-8", "surrogateescape"), password)
