"""TLS to the servers that are measured: settings, which go to workers, and what becomes of them."""

import ssl
from dataclasses import dataclass

from memlite.errors import ConfigError

__all__ = ["TlsClient"]


@dataclass(frozen=True, slots=True)
class TlsClient:
    """How clients speak TLS.

    Attributes:
        ca_cert: a PEM file of the certificates that the server's is checked against; empty for
            those this machine trusts.
        cert: a PEM file with the client's own certificate; empty for none.
        key: one with its private key; empty where it is in `cert`.
        verify: whether the server's certificate is checked, and the host it is for.
    """

    ca_cert: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Return what connections are made with.

        Raises:
            ConfigError: a file cannot be used.
        """
        option, path = "--tls-ca-cert", self.ca_cert
        try:
            context = ssl.create_default_context(cafile=path or None)
            if self.cert:
                option, path = "--tls-cert", " and ".join(filter(None, (self.cert, self.key)))
                context.load_cert_chain(self.cert, self.key or None, _refuse_passphrase)
        except ssl.SSLError as error:
            reason = (error.reason or "not such a PEM file").lower().replace("_", " ")
            raise ConfigError(f"bench: {option}: {path}: {reason}") from None
        except OSError as error:
            raise ConfigError(f"bench: {option}: {path}: {error.strerror}") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _refuse_passphrase() -> str:
    raise OSError(0, "the key is encrypted")  # OpenSSL would ask on the terminal
