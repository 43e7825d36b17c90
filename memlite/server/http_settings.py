"""What is checked of the settings of HTTP by servers and proxies that need not have it."""

from memlite.config import Config
from memlite.core.errors import ConfigError, StartError

__all__ = ["not_installed", "refuse_http_settings"]


def refuse_http_settings(config: Config) -> None:
    """Check that nothing is said about HTTP without ``--http``.

    Raises:
        ConfigError: something is.
    """
    usual = Config()
    for name in ("token_file", "hosts", "keys", "debug", "metric_names"):
        field = f"http_{name}"
        if getattr(config, field) != getattr(usual, field):
            option = field.replace("_", "-")
            raise ConfigError(f"--{option}: is for --http, which is not given")


def not_installed(error: ImportError) -> StartError:
    """Return what to tell whose ``--http`` lacks a package."""
    return StartError(f"--http: {error.name} is not installed: pip install 'memlite-cache[http]'")
