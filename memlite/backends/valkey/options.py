"""The options in a ``valkey://`` URL."""

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from memlite.backends.registry import BackendUrl
from memlite.backends.remote.parameters import number
from memlite.core.errors import ConfigError

__all__ = ["PASSWORD_VARIABLE", "Options", "parse_options"]

PASSWORD_VARIABLE: Final = "MEMLITE_VALKEY_PASSWORD"  # noqa: S105 - its name

_PORT = 6379
_WITH_TLS = ("valkeys", "rediss")
_PLAIN_OPTIONS = ("timeout", "deadline", "concurrency", "cluster", "db", "password_file")
_TLS_OPTIONS = ("ca_cert", "cert", "key", "verify")
_PREFIX_BYTES = 200
# A colon ends the prefix. Braces choose the slot, so that all items would be in one.
_NOT_IN_PREFIX = re.compile(r"[\x00-\x20\x7f-\x9f:{}]")
_DATABASES = 16_384


@dataclass(frozen=True, slots=True)
class Options:
    """The store, how to reach it, and limits for requests.

    Attributes:
        host: its name or address.
        port: its port.
        prefix: begins all names of items; the epoch is stored under it, too.
        scheme: that of the URL.
        user: whom to authenticate as; empty for the store's default user.
        password: of the user; empty to send none.
        tls: how to connect with TLS; None without.
        timeout: seconds after which a request is given up.
        deadline: seconds for an operation, including further attempts and waiting for its turn.
        concurrency: number of requests that may be in progress at once.
        cluster: whether the store must be a cluster, or must not; None to ask it.
        database: the number of the database; a cluster has only 0.
    """

    host: str
    port: int = _PORT
    prefix: str = "memlite"
    scheme: str = "valkey"
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    timeout: float = 2.0
    deadline: float = 5.0
    concurrency: int = 64
    cluster: bool | None = None
    database: int = 0

    @property
    def shown(self) -> str:
        """The URL without user and options, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.prefix}"


def parse_options(url: BackendUrl, environment: Mapping[str, str] = os.environ) -> Options:
    """Return the options of a ``valkey://[user@]host:port/prefix`` URL.

    Args:
        url: the URL.
        environment: has the password, unless the URL names a file.

    Raises:
        ConfigError: something is wrong with it, or a file it names cannot be read.
    """
    tls = url.scheme in _WITH_TLS
    start = f"--backend: {url.scheme}: "
    user, host, port = _place(start, url)
    given = url.only(*_PLAIN_OPTIONS, *_TLS_OPTIONS)
    for name in _TLS_OPTIONS:
        if name in given and not tls:
            raise ConfigError(f"{start}{name} requires valkeys:// or rediss://")
    timeout = number(start, given, "timeout", 2.0, 0.05, 600.0)
    deadline = number(start, given, "deadline", max(5.0, timeout), 0.05, 3600.0)
    if deadline < timeout:
        raise ConfigError(f"{start}deadline must not be less than timeout")
    cluster = _switch(start, given, "cluster")
    database = _whole(start, given, "db", 0, 0, _DATABASES)
    if cluster and database:
        raise ConfigError(f"{start}a cluster has no db other than 0")
    return Options(
        host=host,
        port=port,
        prefix=_prefix(start, url.path),
        scheme=url.scheme,
        user=user,
        password=_password(start, user, given, environment),
        tls=_tls(start, given) if tls else None,
        timeout=timeout,
        deadline=deadline,
        concurrency=_whole(start, given, "concurrency", 64, 1, 10_000),
        cluster=cluster,
        database=database,
    )


def _place(start: str, url: BackendUrl) -> tuple[str, str, int]:
    user, _, server = url.host.rpartition("@")
    if ":" in user:
        raise ConfigError(
            f"{start}others can see a password in the URL; leave it out, and use "
            f"?password_file=FILE or {PASSWORD_VARIABLE}"
        )
    try:
        parts = urlsplit(f"//{server}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port == 0:
        raise ConfigError(f"{start}must be like {url.scheme}://host:{_PORT}/prefix")
    return unquote(user), host, port or _PORT


def _prefix(start: str, path: str) -> str:
    prefix = path.strip("/") or "memlite"
    if _NOT_IN_PREFIX.search(prefix):
        raise ConfigError(f"{start}a prefix has no spaces, colons or braces: {prefix!r}")
    if len(prefix.encode()) > _PREFIX_BYTES:
        raise ConfigError(f"{start}the prefix may have {_PREFIX_BYTES} bytes")
    return prefix


def _password(
    start: str, user: str, given: Mapping[str, str], environment: Mapping[str, str]
) -> str:
    file = given.get("password_file")
    if file is None:
        password = environment.get(PASSWORD_VARIABLE, "")
        source = PASSWORD_VARIABLE
    else:
        source = f"password_file {file}"
        try:
            password = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is not UTF-8"
            raise ConfigError(f"{start}{source}: {reason}") from None
    if not password and (user or file is not None):
        more = "" if file else "; set it, or give a ?password_file="
        raise ConfigError(f"{start}no password in {source}{more}")
    return password


def _tls(start: str, given: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if _switch(start, given, "verify") is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "key" in given and "cert" not in given:
        raise ConfigError(f"{start}key requires cert")
    name = "ca_cert"
    try:
        if "ca_cert" in given:
            context.load_verify_locations(given["ca_cert"])
        name = "cert"
        if "cert" in given:
            context.load_cert_chain(given["cert"], given.get("key"))
    except OSError as error:  # also ssl.SSLError
        reason = error.strerror or str(error)
        raise ConfigError(f"{start}{name}: {given[name]}: {reason}") from None
    return context


def _switch(start: str, given: Mapping[str, str], name: str) -> bool | None:
    text = given.get(name)
    if text not in (None, "0", "1"):
        raise ConfigError(f"{start}{name} must be 0 or 1, not {text!r}")
    return None if text is None else text == "1"


def _whole(
    start: str, given: Mapping[str, str], name: str, default: int, least: int, most: int
) -> int:
    value = number(start, given, name, default, least, most)
    if value != int(value):
        raise ConfigError(f"{start}{name} must be a whole number")
    return int(value)
