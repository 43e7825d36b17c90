"""A client's password and TLS settings, from a program's options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from memlite.client.login import TextLogin
from memlite.client.tls import TlsFileError, TlsSettings
from memlite.core.errors import ConfigError
from memlite.core.files import read_whole

__all__ = ["password_in", "read_login", "read_tls"]

_MAX_FILE_SIZE: Final = 64 * 1024


def read_login(
    prefix: str, user: str | None, file: Path | None, variable: str, environment: Mapping[str, str]
) -> TextLogin | None:
    """Return the login that options and the environment describe; None for no login.

    Args:
        prefix: the prefix of messages: the program and the option's first part (``bench: --``).
        user: the value of the option ``user``; None if it was not given.
        file: the value of the option ``password-file``, a file whose first line is the password;
            None to read the environment.
        variable: the environment variable with the password.
        environment: the environment.

    Raises:
        ConfigError: an option or the password is missing, or the file cannot be read.
    """
    if user is None:
        if file is not None:
            raise ConfigError(f"{prefix}password-file requires --{_option(prefix)}user")
        return None
    if not user or " " in user:
        raise ConfigError(f"{prefix}user must be a name without spaces")
    if file is None:
        password = environment.get(variable, "").encode("utf-8", "surrogateescape")
        source = variable
    else:
        try:
            password = password_in(file)
        except OSError as error:
            raise ConfigError(f"{prefix}password-file {file}: {error.strerror}") from None
        source = f"--{_option(prefix)}password-file {file}"
    if not password:
        raise ConfigError(
            f"{prefix}user {user}: no password in {source}"
            + ("" if file else f"; set it, or use --{_option(prefix)}password-file")
        )
    return TextLogin(user.encode("utf-8", "surrogateescape"), password)


def password_in(file: Path) -> bytes:
    """Return the password in the first line of a file.

    Raises:
        OSError: the file cannot be read.
    """
    return read_whole(file, _MAX_FILE_SIZE).content.partition(b"\n")[0].removesuffix(b"\r")


def read_tls(prefix: str, given: bool, settings: TlsSettings) -> TlsSettings | None:
    """Return the TLS settings that options describe; None for no TLS.

    Args:
        prefix: as for `read_login`.
        given: whether the option ``tls`` was given.
        settings: the values of the options ``tls-ca-cert``, ``tls-cert``, ``tls-key`` and
            ``tls-skip-verify``.

    Raises:
        ConfigError: an option is missing, or a file cannot be used.
    """
    if not given:
        others = {
            "ca-cert": settings.ca_cert,
            "cert": settings.cert,
            "key": settings.key,
            "skip-verify": not settings.verify,
        }
        for name, value in others.items():
            if value:
                raise ConfigError(f"{prefix}tls-{name} requires --{_option(prefix)}tls")
        return None
    if settings.key and not settings.cert:
        raise ConfigError(f"{prefix}tls-key requires --{_option(prefix)}tls-cert")
    try:
        settings.context()
    except TlsFileError as error:
        option = error.setting.replace("_", "-")
        raise ConfigError(f"{prefix}tls-{option}: {error.path}: {error.reason}") from None
    return settings


def _option(prefix: str) -> str:
    return prefix.partition("--")[2]
