"""Human-readable numbers: three significant digits and a suitable unit."""

import math

__all__ = ["duration", "grouped", "money", "percent", "short", "size"]

_THOUSANDS = ((1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, ""))
_TIMES = ((60e6, " min"), (1e6, " s"), (1e3, " ms"), (1.0, " µs"))
_SIZES = ((1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B"))


def short(value: float) -> str:
    """Return a number like ``41.2 k``."""
    return _scaled(value, _THOUSANDS)


def grouped(value: float) -> str:
    """Return a number like ``41,200``, for running text."""
    return _plain(_rounded(value))


def duration(microseconds: float) -> str:
    """Return a time like ``1.3 ms``.

    Args:
        microseconds: the duration.
    """
    return _scaled(microseconds, _TIMES)


def size(size: float) -> str:
    """Return a size like ``45.2 MB``; a kB is 1,000 bytes.

    Args:
        size: the size in bytes.
    """
    return _scaled(size, _SIZES)


def percent(share: float) -> str:
    """Return a share like ``12.5%``.

    Args:
        share: the share; 1.0 is 100%.
    """
    return f"{_plain(_rounded(share * 100))}%"


def money(amount: float, currency: str) -> str:
    """Return an amount like ``0.82 USD``; amounts below 1 have two significant digits.

    Args:
        amount: the amount in whole units of the currency.
        currency: the currency's code.
    """
    text = f"{amount:,.2f}" if amount >= 1 else _plain(_rounded(amount, 2))
    return f"{text} {currency}"


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    rounded = _rounded(value)
    for factor, unit in units:
        # Switch to minutes only at ten: 90 s reads better than 1.5 min.
        if abs(rounded) >= factor * (10 if unit == " min" else 1):
            return _plain(_rounded(value / factor)) + unit
    return _plain(rounded) + units[-1][1]


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits - 1}e}")


def _plain(value: float) -> str:
    """Return the number without an exponent or trailing zeros, with thousands grouped."""
    if not value:
        return "0"
    decimals = max(0, 4 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
