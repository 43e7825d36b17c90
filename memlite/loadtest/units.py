"""Numbers for people: three significant digits, and a unit that keeps them short."""

import math

__all__ = ["duration", "grouped", "money", "percent", "short", "size"]

_THOUSANDS = ((1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, ""))
_TIMES = ((60e6, " min"), (1e6, " s"), (1e3, " ms"), (1.0, " µs"))
_SIZES = ((1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B"))


def short(value: float) -> str:
    """Return a number like ``41.2 k``."""
    return _scaled(value, _THOUSANDS)


def grouped(value: float) -> str:
    """Return a number like ``41,200``, for sentences."""
    return _plain(_rounded(value))


def duration(microseconds: float) -> str:
    """Return a time like ``1.3 ms``.

    Args:
        microseconds: how long.
    """
    return _scaled(microseconds, _TIMES)


def size(size: float) -> str:
    """Return a size like ``45.2 MB``; a kB is 1,000 bytes.

    Args:
        size: in bytes.
    """
    return _scaled(size, _SIZES)


def percent(share: float) -> str:
    """Return a share like ``12.5%``.

    Args:
        share: 1.0 is 100%.
    """
    return f"{_plain(_rounded(share * 100))}%"


def money(amount: float, currency: str) -> str:
    """Return an amount like ``0.82 USD``, with two significant digits where it is small.

    Args:
        amount: in whole units of the currency.
        currency: its code.
    """
    text = f"{amount:,.2f}" if amount >= 1 else _plain(_rounded(amount, 2))
    return f"{text} {currency}"


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    rounded = _rounded(value)
    for factor, unit in units:
        # Minutes begin at ten of them: 90 s says more than 1.5 min.
        if abs(rounded) >= factor * (10 if unit == " min" else 1):
            return _plain(_rounded(value / factor)) + unit
    return _plain(rounded) + units[-1][1]


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits - 1}e}")


def _plain(value: float) -> str:
    """Return it without exponent, with thousands grouped and no zeros at the end."""
    if not value:
        return "0"
    decimals = max(0, 4 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
