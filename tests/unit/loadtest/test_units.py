"""Human-readable numbers."""

import pytest

from memlite.loadtest import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.5, "0.5"),
        (7, "7"),
        (999.6, "1 k"),
        (41_234, "41.2 k"),
        (100_000, "100 k"),
        (1_234_567, "1.23 M"),
        (-1500, "-1.5 k"),
    ],
)
def test_short(value, text):
    assert units.short(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (41_234, "41,200"), (999_999, "1,000,000"), (0.0333, "0.0333")]
)
def test_grouped(value, text):
    assert units.grouped(value) == text


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 µs"),
        (850, "850 µs"),
        (1300, "1.3 ms"),
        (999_999, "1 s"),
        (90e6, "90 s"),
        (3600e6, "60 min"),
    ],
)
def test_duration(microseconds, text):
    assert units.duration(microseconds) == text


def test_size():
    assert [units.size(value) for value in (100, 1000, 45_200_000)] == ["100 B", "1 kB", "45.2 MB"]


def test_percent():
    assert [units.percent(value) for value in (0, 0.125, 1, 0.99999)] == [
        "0%",
        "12.5%",
        "100%",
        "100%",
    ]


def test_money():
    assert [units.money(value, "USD") for value in (0, 0.000453, 0.82, 12.3)] == [
        "0 USD",
        "0.00045 USD",
        "0.82 USD",
        "12.30 USD",
    ]
