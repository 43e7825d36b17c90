"""Rules about settings that depend on each other: implied values and forbidden combinations."""

from typing import Any

from memlite.config.parsers import MEGABYTE
from memlite.config.settings import Config
from memlite.core.errors import ConfigError

__all__ = ["check", "with_implied"]


def with_implied(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in the values that others imply, as memcached does.

    Args:
        values: the values that were set, by field in `Config`; modified in place.

    Returns:
        `values`.
    """
    # -U without -p moves TCP to the same port.
    if values.get("udp_port") and "port" not in values:
        values["port"] = values["udp_port"]
    # SASL exists in the binary protocol only; password files and the lite dialect in text only.
    if values.get("enable_sasl"):
        values.setdefault("protocol", "binary")
    elif values.get("auth_file") or values.get("dialect") == "lite":
        values.setdefault("protocol", "ascii")
    return values


def check(config: Config) -> Config:
    """Return `config` if its values are consistent.

    Raises:
        ConfigError: two of them contradict each other.
    """
    if config.max_item_size > config.memory_limit * MEGABYTE:
        raise ConfigError(
            f"-I: an item of {config.max_item_size} bytes would not fit into -m "
            f"{config.memory_limit} (megabytes)"
        )
    if 0 < config.near_cache < MEGABYTE:
        raise ConfigError(f"--near-cache: must be 0 or at least 1m, not {config.near_cache}")
    if config.dialect == "lite":
        _check_lite(config)
    _check_authentication(config)
    if config.unix_socket and config.listen:
        raise ConfigError(
            "-l: cannot be combined with a UNIX socket (-s), which disables network support"
        )
    return config


def _check_lite(config: Config) -> None:
    """Reject settings that the lite dialect cannot express."""
    wrong = None
    if config.asks_for_password:
        flag = "-S" if config.enable_sasl else "-Y"
        wrong = f"clients cannot authenticate with it; omit {flag}"
    elif config.udp_port:
        wrong = "it does not work over UDP; omit -U"
    elif config.protocol != "ascii":
        wrong = f"it is a text protocol and excludes all others; omit -B {config.protocol}"
    if wrong:
        raise ConfigError(f"--dialect lite: {wrong}")


def _check_authentication(config: Config) -> None:
    """Reject protocols in which clients could not authenticate, as memcached does."""
    protocol = config.protocol
    if config.enable_sasl:
        if protocol == "ascii" or (protocol == "auto" and not config.auth_file):
            raise ConfigError(
                f"-S: SASL is for the binary protocol, not for -B {protocol}"
                + (" (without -Y)" if protocol == "auto" else "")
            )
    elif config.auth_file and protocol != "ascii":
        raise ConfigError(
            f"-Y: password files are for the text protocol, not for -B {protocol}; for the binary "
            "protocol use -S"
        )
    if config.udp_port and (config.enable_sasl or config.auth_file):
        flag = "-S" if config.enable_sasl else "-Y"
        raise ConfigError(f"{flag}: clients cannot authenticate over UDP; omit -U")
