"""Parameters common to the URLs of network stores."""

from collections.abc import Mapping

from memlite.core.errors import ConfigError

__all__ = ["number"]


def number(
    start: str, given: Mapping[str, str], name: str, default: float, least: float, most: float
) -> float:
    """Return a number from a URL's query.

    Args:
        start: the beginning of messages, such as ``--backend: gs: ``.
        given: the parameters of the URL.
        name: the name of the number.
        default: its value if not given.
        least: the lowest value allowed.
        most: the highest value allowed.

    Raises:
        ConfigError: it is not a number from `least` to `most`.
    """
    text = given.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= most:
        raise ConfigError(
            f"{start}{name} must be a number from {least:g} to {most:g}, not {text!r}"
        )
    return value
