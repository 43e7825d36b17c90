"""Parsers of single values: each takes the text of a value and returns the value.

On invalid text they raise `ValueError` with a message that completes "<option>: …".
"""

import re
from collections.abc import Callable

__all__ = [
    "MEGABYTE",
    "Automatic",
    "Choice",
    "addresses",
    "ascii_number",
    "character",
    "duration",
    "http_address",
    "integer",
    "item_size",
    "nanoseconds",
    "node_name",
    "nonempty",
    "number",
    "octal_mode",
    "one_in",
    "otlp_url",
    "size",
    "switch",
    "threads",
]

MEGABYTE = 1024 * 1024
_SIZE = re.compile(r"([0-9]+)([kmgKMG]?)")
_SIZE_UNITS = {"": 1, "k": 1024, "m": MEGABYTE, "g": 1024 * MEGABYTE}
_HTTP_ADDRESS = re.compile(
    r"(?:(?:no|b|m)tls:)?(?:(?:\[[0-9a-fA-F:.%]+\]|[^\s:\[\]]+):)?([0-9]{1,5})"
)
_HTTP_URL = re.compile(r"https?://[^/\s?#]+(/[^\s?#]*)?")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s)")
_DURATION_UNITS = {"us": 1e3, "ms": 1e6, "s": 1e9}
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")
_MAX_NODE_NAME_LENGTH = 100
_MAX_THREADS = 64


def ascii_number(text: str) -> str:
    """Return `text` unchanged, for `int` or `float` to convert.

    Raises:
        ValueError: it has underscores or non-ASCII digits, which only Python reads as numbers.
    """
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            value = int(ascii_number(text))
        except ValueError:
            raise ValueError(f"must be a whole number, not {text!r}") from None
        if value < low:
            raise ValueError(f"must be at least {low}, not {value}")
        if value > high:
            raise ValueError(f"must be at most {high}, not {value}")
        return value

    return parse


class Automatic(int):
    """A number that may be reduced where it is not possible."""


def threads(text: str) -> int:
    """Parse the number of worker processes; ``auto`` is the number of usable cores."""
    if text == "auto":
        from memlite.core.machine import usable_cores  # rarely needed

        return Automatic(min(usable_cores(), _MAX_THREADS))
    if not text.strip().lstrip("+-").isdecimal():
        raise ValueError(f"must be a whole number or auto, not {text!r}")
    return integer(1, _MAX_THREADS)(text)


def number(low: float, *, inclusive: bool) -> Callable[[str], float]:
    """Return a parser of finite numbers above `low`; `inclusive` admits `low` itself."""

    def parse(text: str) -> float:
        try:
            value = float(ascii_number(text))
        except ValueError:
            raise ValueError(f"must be a number, not {text!r}") from None
        # Negated so that NaN, which compares false with everything, is rejected too.
        if not (value >= low if inclusive else value > low) or value == float("inf"):
            raise ValueError(f"must be {'at least' if inclusive else 'more than'} {low:g}")
        return value

    return parse


def octal_mode(text: str) -> int:
    """Parse file permissions in octal, such as 700."""
    try:
        mode = int(ascii_number(text), 8)
    except ValueError:
        raise ValueError(f"must be an octal mode such as 700, not {text!r}") from None
    if not 0 <= mode <= 0o777:
        raise ValueError(f"must be between 0 and 777, not {text!r}")
    return mode


def size(text: str) -> int:
    """Parse a number of bytes with an optional suffix k, m or g."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"must be a size such as 1048576, 512k or 2m, not {text!r}")
    return int(match[1]) * _SIZE_UNITS[match[2].lower()]


def item_size(text: str) -> int:
    """Parse a size from 1 KiB to 1 GiB, in bytes."""
    value = size(text)
    if not 1024 <= value <= 1024 * MEGABYTE:
        raise ValueError(f"must be between 1k and 1g, not {text}")
    return value


def nanoseconds(text: str) -> int:
    """Parse a time such as 500us, 10ms or 1.5s into nanoseconds; 0 is none."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        if text.strip() == "0":
            return 0
        raise ValueError(f"must be a time such as 500us, 10ms or 1.5s, not {text!r}")
    return round(float(match[1]) * _DURATION_UNITS[match[2]])


def duration(text: str) -> str:
    """Accept a time in the format of `nanoseconds`, up to an hour."""
    found = nanoseconds(text)
    if not found and any(digit in text for digit in "123456789"):
        raise ValueError(f"must be at least 1ns, or 0 for none, not {text}")
    if found > 3_600_000_000_000:
        raise ValueError(f"must be at most 3600s, not {text}")
    return text.strip()


class Choice:
    """A parser that accepts only `choices`.

    Attributes:
        choices: the texts.
    """

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, text: str) -> str:
        """Return `text` if it is one of them."""
        if text not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}, not {text!r}")
        return text


def character(text: str) -> str:
    """Parse a single visible ASCII character."""
    if len(text) != 1 or not text.isascii() or text.isspace():
        raise ValueError(f"must be one visible ASCII character, not {text!r}")
    return text


def nonempty(text: str) -> str:
    """Accept any text but the empty one."""
    if not text:
        raise ValueError("must not be empty")
    return text


def node_name(text: str) -> str:
    """Accept a name of up to 100 bytes without spaces."""
    if not text.isprintable() or " " in text or not 0 < len(text.encode()) <= _MAX_NODE_NAME_LENGTH:
        raise ValueError(f"must have 1 to {_MAX_NODE_NAME_LENGTH} bytes and no spaces")
    return text


def addresses(text: str) -> tuple[str, ...]:
    """Parse addresses separated by commas; the addresses themselves are not checked."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise ValueError(f"has an empty address in {text!r}")
    return found


def http_address(text: str) -> str:
    """Accept a port, or a host and a port, after an optional TLS prefix as for `-l`."""
    match = _HTTP_ADDRESS.fullmatch(text)
    if not match or int(match[1]) > 65535:
        raise ValueError(f"must end in a port, such as 9150 or 0.0.0.0:9150, not {text!r}")
    return text


def otlp_url(text: str) -> str:
    """Accept the URL of an OTLP receiver, or ``env``."""
    if text != "env" and not _HTTP_URL.fullmatch(text):
        raise ValueError(f"must be env, or a URL such as http://localhost:4318, not {text!r}")
    if text.rstrip("/").endswith(("/v1/metrics", "/v1/traces")):
        raise ValueError(f"must be the URL without /v1/metrics or /v1/traces, not {text!r}")
    return text


def one_in(text: str) -> str:
    """Accept a share such as ``1/100``."""
    one, _, every = text.partition("/")
    if one != "1" or not (every.isascii() and every.isdecimal()) or not 0 < int(every) <= 10**9:
        raise ValueError(f"must be a share such as 1/100, not {text!r}")
    return text


def switch(text: str) -> bool:
    """Parse true or false, in the usual spellings."""
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError(f"must be true or false, not {text!r}")
