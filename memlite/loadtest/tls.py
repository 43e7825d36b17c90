"""TLS to the measured servers; errors name the load tester's options."""

import ssl

from memlite.client.tls import TlsFileError, TlsSettings
from memlite.core.errors import ConfigError

__all__ = ["tls_context"]


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context for connections.

    Raises:
        ConfigError: a file cannot be used; the message names the option.
    """
    try:
        return settings.context()
    except TlsFileError as error:
        option = error.setting.replace("_", "-")
        raise ConfigError(f"bench: --tls-{option}: {error.path}: {error.reason}") from None
