"""TLS to the servers that are measured: errors in the words of the load tester's options."""

import ssl

from memlite.client.tls import TlsFileError, TlsSettings
from memlite.core.errors import ConfigError

__all__ = ["tls_context"]


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for connections.

    Raises:
        ConfigError: a file cannot be used; the text names the option.
    """
    try:
        return settings.context()
    except TlsFileError as error:
        option = error.setting.replace("_", "-")
        raise ConfigError(f"bench: --tls-{option}: {error.path}: {error.reason}") from None
