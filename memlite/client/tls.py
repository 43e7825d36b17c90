"""TLS settings of a client, and the SSL context they describe."""

import ssl
from dataclasses import dataclass

from memlite.core.errors import ConfigError
from memlite.core.files import check_regular

__all__ = ["TlsFileError", "TlsSettings"]


class TlsFileError(ConfigError):
    """A file of the TLS settings cannot be used.

    Attributes:
        setting: the attribute of `TlsSettings` that names the file.
        path: the file; the certificate's and the key's, if they are separate.
        reason: a few words.
    """

    def __init__(self, setting: str, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.setting = setting
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """A client's TLS settings. Plain values, which can be sent to other processes.

    Attributes:
        ca_cert: a PEM file with the CA certificates to verify the server's certificate; empty for
            those this machine trusts.
        cert: a PEM file with the client's own certificate; empty for none.
        key: a PEM file with its private key; empty if `cert` contains it.
        verify: whether to verify the server's certificate and host name.
    """

    ca_cert: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the context for connections with these settings.

        Raises:
            TlsFileError: a file cannot be read, or is not valid.
        """
        setting, path = "ca_cert", self.ca_cert
        try:
            if path:
                check_regular(path)
            context = ssl.create_default_context(cafile=path or None)
            if self.cert:
                setting, path = "cert", " and ".join(filter(None, (self.cert, self.key)))
                for file in filter(None, (self.cert, self.key)):
                    check_regular(file)
                context.load_cert_chain(self.cert, self.key or None, _refuse_passphrase)
        except _EncryptedKeyError:
            raise TlsFileError(setting, path, "the key is encrypted") from None
        except ssl.SSLError as error:
            reason = (error.reason or "not a valid PEM file").lower().replace("_", " ")
            raise TlsFileError(setting, path, reason) from None
        except OSError as error:
            raise TlsFileError(setting, path, error.strerror or str(error)) from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class _EncryptedKeyError(Exception):
    """OpenSSL would ask for a passphrase on the terminal."""


def _refuse_passphrase() -> str:
    raise _EncryptedKeyError
