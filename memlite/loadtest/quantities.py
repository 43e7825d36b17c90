"""Numbers as people read them."""

__all__ = ["count", "latency"]


def count(number: float) -> str:
    """Return a number with three digits that count: ``41.2 k``."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= limit * 0.9995:
            return _three(number / limit) + unit
    return _three(number)


def latency(microseconds: float) -> str:
    """Return a time with its unit: ``85 µs``, ``1.30 ms``, ``2.00 s``."""
    if microseconds < 999.5:
        return f"{microseconds:.0f} µs"
    if microseconds < 999_500:
        return f"{_three(microseconds / 1e3)} ms"
    return f"{_three(microseconds / 1e6)} s"


def _three(number: float) -> str:
    size = abs(number)
    if size >= 99.95 or number == int(number):
        return f"{number:.0f}"
    return f"{number:.1f}" if size >= 9.995 else f"{number:.2f}"
