"""The options in a ``gs://`` URL."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from memlite.backends.registry import BackendUrl
from memlite.backends.remote.parameters import number
from memlite.core.errors import ConfigError

__all__ = ["Options", "parse_options"]

_START = "--backend: gs: "
_GOOGLE = "https://storage.googleapis.com"
# https://cloud.google.com/storage/docs/buckets#naming; with dots up to 222.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", re.ASCII)
# Object names have at most 1,024 bytes; a key of 250 bytes takes 337 of them.
_PREFIX_BYTES = 600
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Options:
    """The bucket, how to reach it, and limits for requests.

    Attributes:
        bucket: its name.
        prefix: prefix of all object names: empty, or ending with a slash.
        endpoint: scheme, host and port of the storage API, without a slash at the end.
        timeout: seconds after which a request is aborted, and possibly retried.
        deadline: seconds for an operation, including retries and waiting for its turn.
        concurrency: number of requests that may be in progress at once.
        project: the project for quota, which requester-pays buckets charge; empty for that of the
            credentials.
        strict: whether every write is conditional, and deletes leave tombstones.
    """

    bucket: str
    prefix: str = ""
    endpoint: str = _GOOGLE
    timeout: float = 2.0
    deadline: float = 5.0
    concurrency: int = 64
    project: str = ""
    strict: bool = True

    @property
    def anonymous(self) -> bool:
        """Whether to use no credentials: a token must not be sent in plain text."""
        return self.endpoint.startswith("http://")

    @property
    def shown(self) -> str:
        """The URL without its options, for messages."""
        return f"gs://{self.bucket}/{self.prefix}"


def parse_options(url: BackendUrl, environment: Mapping[str, str] = os.environ) -> Options:
    """Return the options of a ``gs://bucket/prefix`` URL.

    Args:
        url: the URL.
        environment: its STORAGE_EMULATOR_HOST is the endpoint unless the URL specifies one, as for
            Google's own libraries.

    Raises:
        ConfigError: the URL is invalid.
    """
    given = url.only("timeout", "deadline", "concurrency", "strict", "endpoint", "project")
    if not _BUCKET.fullmatch(url.host):
        raise ConfigError(f"--backend: invalid bucket name {url.host!r}; use gs://bucket/prefix")
    timeout = number(_START, given, "timeout", 2.0, 0.05, 600.0)
    deadline = number(_START, given, "deadline", max(5.0, timeout), 0.05, 3600.0)
    if deadline < timeout:
        raise ConfigError("--backend: gs: deadline must not be less than timeout")
    concurrency = number(_START, given, "concurrency", 64, 1, 10_000)
    if concurrency != int(concurrency):
        raise ConfigError("--backend: gs: concurrency must be a whole number")
    strict = given.get("strict", "1")
    if strict not in ("0", "1"):
        raise ConfigError(f"--backend: gs: strict must be 0 or 1, not {strict!r}")
    return Options(
        bucket=url.host,
        prefix=_prefix(url.path),
        endpoint=_endpoint(given.get("endpoint", ""), environment),
        timeout=timeout,
        deadline=deadline,
        concurrency=int(concurrency),
        project=given.get("project", ""),
        strict=strict == "1",
    )


def _prefix(path: str) -> str:
    prefix = path.strip("/")
    if _CONTROL.search(prefix) or "//" in prefix or {".", ".."} & set(prefix.split("/")):
        raise ConfigError(f"--backend: gs: invalid prefix for object names: {prefix!r}")
    if len(prefix.encode()) > _PREFIX_BYTES:
        raise ConfigError(f"--backend: gs: the prefix must not exceed {_PREFIX_BYTES} bytes")
    return f"{prefix}/" if prefix else ""


def _endpoint(given: str, environment: Mapping[str, str]) -> str:
    name, text = "endpoint", given
    if not text:
        name, text = "STORAGE_EMULATOR_HOST", environment.get("STORAGE_EMULATOR_HOST", "")
        if not text:
            return _GOOGLE
        if "://" not in text:
            text = f"http://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    bare = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
    if parts.scheme not in ("http", "https") or not parts.hostname or not bare:
        raise ConfigError(f"--backend: gs: {name} must be like http://127.0.0.1:4443, not {text!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")
