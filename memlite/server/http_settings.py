"""Checks of the HTTP settings that do not need the HTTP dependencies."""

from memlite.config import Config
from memlite.core.errors import ConfigError, StartError

__all__ = ["not_installed", "refuse_http_settings"]


def refuse_http_settings(config: Config) -> None:
    """Check that no HTTP settings are given without ``--http``.

    Raises:
        ConfigError: an HTTP setting is given.
    """
    usual = Config()
    for name in ("token_file", "hosts", "keys", "debug", "metric_names"):
        field = f"http_{name}"
        if getattr(config, field) != getattr(usual, field):
            option = field.replace("_", "-")
            raise ConfigError(f"--{option}: requires --http")


def not_installed(error: ImportError) -> StartError:
    """Return the error for ``--http`` with a missing package."""
    return StartError(f"--http: {error.name} is not installed: pip install 'memlite-cache[http]'")
