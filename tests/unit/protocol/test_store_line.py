import pytest

from memlite.protocol import store_line
from memlite.protocol.store_line import known_rest, read_rest


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (b"0 0 5", (5, 0, 0, b" 0 5\r\n", False)),
        (b"7 100 4096 noreply", (4096, 7, 100, b" 7 4096\r\n", True)),
        (b"4096 -1 0", (0, 4096, -1, b" 4096 0\r\n", False)),
        (b"0 +9 0", (0, 0, 9, b" 0 0\r\n", False)),
        (b"4294967295 0 1048576", (1048576, 4294967295, 0, b" 4294967295 1048576\r\n", False)),
        (b"0 009 0", (0, 0, 9, b" 0 0\r\n", False)),
    ],
)
def test_usual_forms(words, expected):
    assert read_rest(words) == expected
    assert known_rest(words) == expected


@pytest.mark.parametrize(
    "words",
    [
        b"", b"0", b"0 0", b"0 0 5 ", b" 0 0 5", b"0  0 5", b"0 0 5 noreplyx", b"0 0 5 1 noreply",
        b"00 0 5", b"0 0 05", b"+1 0 5", b"0 x 5", b"0 +-5 5", b"0 + 5", b"0 0 -1", b"0 0 04097",
        b"4294967296 0 5", b"0 0 2147483646", b"0 0 99999999999",
        b"0 0 5\n", b"0 " + b"0" * 60 + b" 5", b"0 18446744073709551616 5",
    ],
)  # fmt: skip
def test_other_forms_have_no_shortcut_and_are_not_remembered(words):
    assert read_rest(words) is None
    assert known_rest(words) is None


def test_the_number_of_remembered_forms_is_limited():
    for number in range(3 * store_line._AT_MOST):
        assert read_rest(b"0 %d 5" % number) == (5, 0, number, b" 0 5\r\n", False)
        assert len(store_line._known) <= store_line._AT_MOST
