"""The URL of a store that is one memcached or memlite.

    memcached://[user@]host:port/prefix[?password_file=FILE]
    memcacheds://…[?ca_cert=FILE&cert=FILE&key=FILE&verify=0]

The second connects with TLS. Without ``password_file`` the password is in `PASSWORD_VARIABLE`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from memlite.client import Address, parse_address
from memlite.client.credentials import password_in
from memlite.client.login import TextLogin
from memlite.client.tls import TlsFileError, TlsSettings
from memlite.cluster.membership.memcached_store import MemcachedStore
from memlite.core.errors import ConfigError

__all__ = ["PASSWORD_VARIABLE", "memcached_store_of"]

PASSWORD_VARIABLE: Final = "MEMLITE_STORE_PASSWORD"  # noqa: S105 - its name

_MAX_PREFIX_LENGTH: Final = 100
_PLAIN: Final = ("password_file",)
_WITH_TLS: Final = (*_PLAIN, "ca_cert", "cert", "key", "verify")


def memcached_store_of(
    scheme: str, rest: str, flag: str, environment: Mapping[str, str]
) -> MemcachedStore:
    """Return the store.

    Args:
        scheme: ``memcached`` or ``memcacheds``.
        rest: the part of the URL after ``://``.
        flag: the option with the URL, for messages.
        environment: the environment.

    Raises:
        ConfigError: the URL is wrong, or a file that it names cannot be used.
    """
    start = f"{flag}: {scheme}: "
    place, _, query = rest.partition("?")
    server, _, prefix = place.partition("/")
    user, _, host = server.rpartition("@")
    if ":" in user:
        raise ConfigError(
            f"{start}others can see a password in the URL; leave it out, and use"
            f" ?password_file=FILE or {PASSWORD_VARIABLE}"
        )
    values = _values(start, query, _WITH_TLS if scheme == "memcacheds" else _PLAIN)
    return MemcachedStore(
        _address(flag, host),
        _prefix(flag, prefix) + "/",
        login=_login(start, unquote(user), values, environment),
        tls=_tls(start, values) if scheme == "memcacheds" else None,
    )


def _address(flag: str, text: str) -> Address:
    try:
        return parse_address(text)
    except ConfigError as error:
        raise ConfigError(f"{flag}: {error}") from None


def _prefix(flag: str, text: str) -> str:
    prefix = text.strip("/") or "cluster"
    wrong = any(character <= " " or character == "\x7f" for character in prefix)
    if wrong or len(prefix.encode()) > _MAX_PREFIX_LENGTH:
        raise ConfigError(
            f"{flag}: prefix must have at most {_MAX_PREFIX_LENGTH} bytes and no spaces: {text!r}"
        )
    return prefix


def _values(start: str, query: str, known: tuple[str, ...]) -> dict[str, str]:
    """Return the values of the URL's options."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ConfigError(f"{start}options must be ?name=value&name=value, not {query!r}") from None
    for name, value in pairs:
        if name in _WITH_TLS and name not in known:
            raise ConfigError(f"{start}{name} requires memcacheds://")
        if name not in known:
            raise ConfigError(f"{start}unknown option {name}; the options are {', '.join(known)}")
        if not value:
            raise ConfigError(f"{start}{name} is empty")
    return dict(pairs)


def _login(
    start: str, user: str, values: Mapping[str, str], environment: Mapping[str, str]
) -> TextLogin | None:
    file = values.get("password_file")
    if not user:
        if file is not None:
            raise ConfigError(f"{start}password_file requires a user: user@host")
        return None
    if " " in user:
        raise ConfigError(f"{start}the user name must not contain spaces: {user!r}")
    if file is None:
        source = PASSWORD_VARIABLE
        password = environment.get(source, "").encode("utf-8", "surrogateescape")
    else:
        source = f"password_file {file}"
        try:
            password = password_in(Path(file))
        except OSError as error:
            raise ConfigError(f"{start}{source}: {error.strerror}") from None
    if not password:
        more = "" if file else "; set it, or use ?password_file=FILE"
        raise ConfigError(f"{start}no password for {user} in {source}{more}")
    return TextLogin(user.encode("utf-8", "surrogateescape"), password)


def _tls(start: str, values: Mapping[str, str]) -> TlsSettings:
    verify = values.get("verify", "1")
    if verify not in ("0", "1"):
        raise ConfigError(f"{start}verify must be 0 or 1, not {verify!r}")
    files = (values.get("ca_cert", ""), values.get("cert", ""), values.get("key", ""))
    settings = TlsSettings(*files, verify=verify == "1")
    if settings.key and not settings.cert:
        raise ConfigError(f"{start}key requires cert")
    try:
        settings.context()
    except TlsFileError as error:
        raise ConfigError(f"{start}{error.setting}: {error}") from None
    return settings
