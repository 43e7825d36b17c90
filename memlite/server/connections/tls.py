"""TLS settings (``-Z``): certificates, keys and client authentication, loaded from files."""

import errno
import ssl
import warnings
from collections.abc import Callable
from pathlib import Path

from memlite.config import ExtendedOptions
from memlite.core.errors import ConfigError
from memlite.core.files import check_regular

__all__ = ["Tls"]

# By -o ssl_min_version.
_MIN_VERSIONS = (
    ssl.TLSVersion.TLSv1,
    ssl.TLSVersion.TLSv1_1,
    ssl.TLSVersion.TLSv1_2,
    ssl.TLSVersion.TLSv1_3,
)
# By -o ssl_verify_mode. "Once" differs from "require" only in renegotiation, which is disabled.
_VERIFY_MODES = (ssl.CERT_NONE, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED, ssl.CERT_REQUIRED)


class Tls:
    """The server's certificate and its requirements for clients.

    Args:
        options: the options of ``-o``.

    Raises:
        ConfigError: there is no certificate, a file cannot be used, or no cipher is usable.
    """

    def __init__(self, options: ExtendedOptions) -> None:
        given = options.given
        if "ssl_chain_cert" not in given:
            raise ConfigError("-Z: TLS needs a certificate: -o ssl_chain_cert=FILE,ssl_key=FILE")
        self._ciphers = given.get("ssl_ciphers")
        self._min_version = _MIN_VERSIONS[options.ssl_min_version]
        self._verify = {
            "tls": _VERIFY_MODES[options.ssl_verify_mode],
            "btls": ssl.CERT_NONE,
            "mtls": ssl.CERT_REQUIRED,
        }
        # Resolved now, because a daemon changes its working directory.
        self._chain = Path(given["ssl_chain_cert"]).absolute()
        self._key = Path(given.get("ssl_key", self._chain)).absolute()
        self._ca = Path(given["ssl_ca_cert"]).absolute() if "ssl_ca_cert" in given else None
        self.reload()

    def reload(self) -> None:
        """Reload the files; they apply to new connections.

        Raises:
            ConfigError: one of them cannot be used; the old ones stay in use.
        """
        self._contexts = {mode: self._context(verify) for mode, verify in self._verify.items()}

    def context(self, mode: str) -> ssl.SSLContext:
        """Return the context for a new connection.

        Args:
            mode: the `Listener.tls` of its listener.
        """
        return self._contexts[mode]

    def requires_certificate(self, mode: str) -> bool:
        """Return whether clients without a certificate are rejected.

        Args:
            mode: the `Listener.tls` of their listener.
        """
        return self._verify.get(mode) is ssl.CERT_REQUIRED

    @property
    def has_ca(self) -> bool:
        """Whether there is a CA certificate to verify clients' certificates with."""
        return self._ca is not None

    def _context(self, verify: ssl.VerifyMode) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with warnings.catch_warnings():
            # TLS 1.0 and 1.1 are deprecated, but were requested explicitly.
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = self._min_version
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        if self._ciphers is not None:
            try:
                context.set_ciphers(self._ciphers)
            except ssl.SSLError:
                raise ConfigError(
                    f"Error setting the provided cipher(s): {self._ciphers}"
                ) from None
        # Loaded separately first, to report which of the two files is at fault.
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load("the certificate chain", self._chain, trial.load_verify_locations)
        _load(
            "the key",
            self._key,
            lambda key: context.load_cert_chain(self._chain, key, _refuse_passphrase),
        )
        if self._ca is not None:
            _load("the CA certificate", self._ca, context.load_verify_locations)
        context.verify_mode = verify
        return context


def _load(what: str, path: Path, load: Callable[[Path], None]) -> None:
    """Have OpenSSL load a file, reporting errors in memcached's format."""
    try:
        check_regular(path)
        load(path)
    except OSError as error:
        raise ConfigError(f"Error loading {what}: {path} : {_reason(error)}") from None


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not a valid PEM file").lower().replace("_", " ")
    return error.strerror or "cannot be read"


def _refuse_passphrase() -> str:
    # OpenSSL would otherwise prompt for it on the terminal.
    raise OSError(errno.EACCES, "it is encrypted; decrypt it with: openssl pkey -in KEY -out NEW")
