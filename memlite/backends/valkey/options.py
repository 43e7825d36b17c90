"""The options in a ``valkey://`` URL."""

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from memlite.backends.registry import BackendUrl
from memlite.backends.remote.parameters import number
from memlite.backends.valkey.iam import AccessTokens
from memlite.core.errors import ConfigError
from memlite.core.files import check_regular, read_whole

__all__ = ["PASSWORD_VARIABLE", "SENTINEL_PASSWORD_VARIABLE", "Options", "parse_options"]

PASSWORD_VARIABLE: Final = "MEMLITE_VALKEY_PASSWORD"  # noqa: S105 - its name
SENTINEL_PASSWORD_VARIABLE: Final = "MEMLITE_VALKEY_SENTINEL_PASSWORD"  # noqa: S105 - its name

_PORT = 6379
_SENTINEL_PORT = 26379
_WITH_TLS = ("valkeys", "rediss")
_PLAIN_OPTIONS = (
    "timeout",
    "deadline",
    "concurrency",
    "cluster",
    "db",
    "password_file",
    "sentinel",
    "sentinel_password_file",
    "wait",
    "wait_timeout",
    "tracking",
    "iam",
)
_TLS_OPTIONS = ("ca_cert", "cert", "key", "verify")
_PREFIX_BYTES = 200
_MAX_FILE_SIZE = 64 * 1024
# A colon ends the prefix. Braces choose the slot, so that all items would be in one.
_NOT_IN_PREFIX = re.compile(r"[\x00-\x20\x7f-\x9f:{}]")
_DATABASES = 16_384
_MAX_REPLICAS = 100


@dataclass(frozen=True, slots=True)
class Options:
    """The store, how to reach it, and limits for requests.

    Attributes:
        host: its name or address.
        port: its port.
        prefix: begins all names of items; the epoch is stored under it, too.
        scheme: the scheme of the URL.
        user: the user to authenticate as; empty for the store's default user.
        password: the user's password; empty to send none.
        tls: how to connect with TLS; None without.
        timeout: seconds after which a request is abandoned.
        deadline: seconds for an operation, including retries and waiting for its turn.
        concurrency: number of requests that may be in progress at once.
        cluster: whether the store must or must not be a cluster; None to ask the store.
        database: the number of the database; a cluster has only 0.
        wait: how many replicas must have a change before it is acknowledged.
        wait_timeout: seconds to wait for them.
        tracking: whether the store announces changes by other servers, for a near cache.
        sentinels: the servers in the URL, if they are Sentinels; `host` and `port` are the first of
            them.
        service: the Sentinels' name for the store; empty if there are none.
        sentinel_password: the Sentinels' password; empty to send none.
        tokens: access tokens used in place of the password; None for none.
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
    wait: int = 0
    wait_timeout: float = 1.0
    tracking: bool = True
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    sentinel_password: str = field(default="", repr=False)
    tokens: AccessTokens | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The URL without user and options, for messages."""
        servers = ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for host, port in self.sentinels or ((self.host, self.port),)
        )
        return f"{self.scheme}://{servers}/{self.prefix}"


def parse_options(url: BackendUrl, environment: Mapping[str, str] = os.environ) -> Options:
    """Return the options of a ``valkey://[user@]host:port/prefix`` URL.

    Args:
        url: the URL.
        environment: contains the password, unless the URL names a file.

    Raises:
        ConfigError: the URL is invalid, or a file that it names cannot be read.
    """
    tls = url.scheme in _WITH_TLS
    start = f"--backend: {url.scheme}: "
    user, servers = _places(start, url)
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
        raise ConfigError(f"{start}a cluster supports only db 0")
    service = given.get("sentinel", "")
    if "sentinel" in given and (not service or cluster):
        reason = "cannot be combined with cluster" if cluster else "must name the master"
        raise ConfigError(f"{start}sentinel {reason}")
    if len(servers) > 1 and not service:
        raise ConfigError(f"{start}several servers require ?sentinel=NAME")
    if "sentinel_password_file" in given and not service:
        raise ConfigError(f"{start}sentinel_password_file requires sentinel")
    wait, wait_timeout = _wait(start, given, timeout)
    iam = _switch(start, given, "iam") is True
    if iam and (not tls or "password_file" in given):
        more = (
            "cannot be combined with password_file" if tls else "requires valkeys:// or rediss://"
        )
        raise ConfigError(f"{start}iam {more}")
    places = tuple((host, port or (_SENTINEL_PORT if service else _PORT)) for host, port in servers)
    return Options(
        host=places[0][0],
        port=places[0][1],
        prefix=_prefix(start, url.path),
        scheme=url.scheme,
        user=user,
        password="" if iam else _password(start, user, given, environment),
        tokens=AccessTokens(user, environment) if iam else None,
        tls=_tls(start, given) if tls else None,
        timeout=timeout,
        deadline=deadline,
        concurrency=_whole(start, given, "concurrency", 64, 1, 10_000),
        cluster=cluster,
        database=database,
        wait=wait,
        wait_timeout=wait_timeout,
        tracking=_switch(start, given, "tracking") is not False,
        sentinels=places if service else (),
        service=service,
        sentinel_password=_sentinel_password(start, given, environment) if service else "",
    )


def _wait(start: str, given: Mapping[str, str], timeout: float) -> tuple[int, float]:
    wait = _whole(start, given, "wait", 0, 0, _MAX_REPLICAS)
    if "wait_timeout" in given and not wait:
        raise ConfigError(f"{start}wait_timeout requires wait")
    seconds = number(start, given, "wait_timeout", timeout / 2, 0.001, 3600.0)
    if wait and seconds >= timeout:
        raise ConfigError(f"{start}wait_timeout must be less than timeout")
    return wait, seconds


def _places(start: str, url: BackendUrl) -> tuple[str, list[tuple[str, int | None]]]:
    user, _, servers = url.host.rpartition("@")
    if ":" in user:
        raise ConfigError(
            f"{start}a password in the URL is visible to other users; use ?password_file=FILE or "
            f"{PASSWORD_VARIABLE} instead"
        )
    places = []
    for server in servers.split(","):
        try:
            parts = urlsplit(f"//{server}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or port == 0:
            raise ConfigError(f"{start}must be like {url.scheme}://host:{_PORT}/prefix")
        places.append((host, port))
    return unquote(user), places


def _prefix(start: str, path: str) -> str:
    prefix = path.strip("/") or "memlite"
    if _NOT_IN_PREFIX.search(prefix):
        raise ConfigError(f"{start}the prefix must have no spaces, colons or braces: {prefix!r}")
    if len(prefix.encode()) > _PREFIX_BYTES:
        raise ConfigError(f"{start}the prefix must not exceed {_PREFIX_BYTES} bytes")
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
        password = _read(f"{start}{source}", file)
    if not password and (user or file is not None):
        more = "" if file else "; set it, or use ?password_file="
        raise ConfigError(f"{start}no password in {source}{more}")
    return password


def _sentinel_password(start: str, given: Mapping[str, str], environment: Mapping[str, str]) -> str:
    file = given.get("sentinel_password_file")
    if file is None:
        return environment.get(SENTINEL_PASSWORD_VARIABLE, "")
    return _read(f"{start}sentinel_password_file {file}", file)


def _read(start: str, file: str) -> str:
    """Return the password in a file."""
    try:
        return read_whole(file, _MAX_FILE_SIZE).content.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not valid UTF-8"
        raise ConfigError(f"{start}: {reason}") from None


def _tls(start: str, given: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    verify = given.get("verify", "1")
    if verify not in ("0", "1", "ca"):
        raise ConfigError(f"{start}verify must be 0, 1 or ca, not {verify!r}")
    context.check_hostname = verify == "1"
    if verify == "0":
        context.verify_mode = ssl.CERT_NONE
    if "key" in given and "cert" not in given:
        raise ConfigError(f"{start}key requires cert")
    name = "ca_cert"
    try:
        for name in ("ca_cert", "cert", "key"):
            if name in given:
                check_regular(given[name])
        name = "ca_cert"
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
