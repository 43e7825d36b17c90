"""Numbers in the text protocol."""

import pytest

from memlite.protocol.numbers import length_of, signed, signed_32, unsigned


@pytest.mark.parametrize(
    ("token", "number"),
    [
        (b"0", 0), (b"4096", 4096), (b"4097", 4097), (b"007", 7),
        (b"18446744073709551615", 2**64 - 1),
        (b"18446744073709551616", None), (b"0" * 30 + b"1", 1), (b"1" + b"0" * 30, None),
        (b"", None), (b"-1", None), (b"+1", None), (b"1_0", None), (b"0x1", None), (b" 1", None),
        (b"1 ", None), (b"1\n", None), (b"1.0", None), ("²".encode(), None), ("٣".encode(), None),
    ],
)  # fmt: skip
def test_unsigned(token, number):
    assert unsigned(token, 2**64) == number


@pytest.mark.parametrize(("end", "number"), [(10, None), (11, 10), (4096, 10)])
def test_unsigned_is_below_its_bound(end, number):
    assert unsigned(b"10", end) == number


@pytest.mark.parametrize(
    ("token", "number"),
    [
        (b"0", 0), (b"-0", 0), (b"-1", -1), (b"4097", 4097), (b"-2147483648", -(2**31)),
        (b"2147483647", 2**31 - 1), (b"", None), (b"-", None), (b"--1", None), (b"+1", None),
        (b"1-", None), (b"1_0", None), (b"0x1", None), (b" 1", None), (b"1\n", None),
        (b"9" * 21, None), ("٣".encode(), None),
        (b"9223372036854775807", 2**63 - 1), (b"9223372036854775808", None),
        (b"-9223372036854775808", -(2**63)), (b"-9223372036854775809", None),
    ],
)  # fmt: skip
def test_signed(token, number):
    assert signed(token) == number


@pytest.mark.parametrize(
    ("token", "number"),
    [
        (b"-", 0), (b"-0", 0), (b"-1", -1), (b"2147483647", 2**31 - 1), (b"2147483648", None),
        (b"-2147483648", -(2**31)), (b"-2147483649", None), (b"--", None), (b"", None),
    ],
)  # fmt: skip
def test_signed_32(token, number):
    assert signed_32(token) == number


@pytest.mark.parametrize(
    ("token", "length"),
    [
        (b"0", 0), (b"5000", 5000), (b"-", 0), (b"-0", 0), (b"-00", 0), (b"-1", None),
        (b"+1", None), (b"2147483645", 2**31 - 3), (b"2147483646", None),
    ],
)  # fmt: skip
def test_length_of(token, length):
    assert length_of(token) == length
