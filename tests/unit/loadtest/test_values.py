"""Value sizes, and the detection of wrong values."""

import zlib

import numpy as np
import pytest

from memlite.core.errors import ConfigError
from memlite.loadtest.values import ValueSource, mean_size, read_sizes
from memlite.loadtest.workload import Values

ANY = Values(distribution="uniform", least=0, most=4_000_000)


def sizes(values, count=50_000):
    return ValueSource(values).sizes(np.random.default_rng(1), count)


def test_fixed():
    assert set(sizes(Values(size=77), 100).tolist()) == {77}
    assert ValueSource(Values(size=77)).fixed == 77
    assert mean_size(Values(size=77)) == 77


def test_uniform():
    values = Values(distribution="uniform", least=10, most=19)
    found = np.bincount(sizes(values))
    assert found[:10].sum() == 0
    assert found[10:] == pytest.approx(np.full(10, 5_000), rel=0.1)
    assert ValueSource(values).fixed is None
    assert mean_size(values) == 14.5


def test_lognormal():
    values = Values(distribution="lognormal", size=100, sigma=0.5, least=20, most=1_000)
    found = sizes(values)
    assert np.median(found) == pytest.approx(100, rel=0.02)
    assert np.log(found).std() == pytest.approx(0.5, rel=0.03)
    assert (found.min(), found.max()) >= (20, 500)
    assert found.max() <= 1_000
    assert mean_size(values) == pytest.approx(100 * np.exp(0.5**2 / 2), rel=0.02)


def test_lognormal_is_clamped_at_both_ends():
    values = Values(distribution="lognormal", size=100, sigma=10, least=50, most=200)
    assert {50, 200} <= set(sizes(values).tolist()) <= set(range(50, 201))


def test_sizes_from_a_file(tmp_path):
    file = tmp_path / "sizes.txt"
    file.write_text("10\n20\n\n 20 \n")
    values = Values(distribution="file", file=str(file))
    assert read_sizes(str(file)) == [10, 20, 20]
    found = sizes(values)
    assert set(found.tolist()) == {10, 20}
    assert (found == 20).mean() == pytest.approx(2 / 3, abs=0.01)
    assert mean_size(values) == pytest.approx(50 / 3)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "contains no sizes"),
        (b"1\n-2\n", "line 2 must be a size from 0 to 134217728, not '-2'"),
        (b"1.5\n", "line 1 must be a size from 0 to 134217728, not '1.5'"),
        (b"134217729\n", "line 1 must be a size from 0 to 134217728, not '134217729'"),
        (b"9" * 5000, "line 1 must be a size from 0 to 134217728, not '" + "9" * 40 + "'"),
        (b"\xff\n", "must be a text file with one size on each line"),
    ],
)
def test_a_malformed_file_of_sizes(tmp_path, text, problem):
    file = tmp_path / "sizes.txt"
    file.write_bytes(text)
    with pytest.raises(ConfigError) as caught:
        read_sizes(str(file))
    assert str(caught.value) == f"{file}: {problem}"


def test_a_missing_file_of_sizes(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_sizes(str(tmp_path / "none"))


@pytest.mark.parametrize("size", [0, 1, 47, 48, 100, 1_000_000, 1_048_576, 1_048_577, 3_500_000])
def test_values_have_the_requested_size_and_pass_the_check(size):
    source = ValueSource(ANY)
    assert len(source.filler(size)) == size
    value = source.make(12, 34, size)
    assert len(value) == size
    assert source.check(12, value)


def test_values_are_the_same_in_every_process():
    # The block comes from a fixed seed; a change would make existing items look corrupted.
    value = ValueSource(ANY).make(999_999_999, 2**62, 60)
    assert value.startswith(b"999999999:4611686018427387904:60:")
    assert zlib.crc32(value) == 0xEDEF4895


@pytest.mark.parametrize("size", [16, 48, 100, 1_000])
def test_corrupted_truncated_and_swapped_values_are_detected(size):
    source = ValueSource(ANY)
    value = source.make(5, 9, size)
    for position in range(size):
        corrupted = bytearray(value)
        corrupted[position] ^= 1
        assert not source.check(5, bytes(corrupted))
    for length in range(4, size):
        assert not source.check(5, value[:length])
    assert not source.check(5, value + b"x")
    for other in range(100):
        assert source.check(5, source.make(other, 9, size)) == (other == 5)


def test_impossible_sizes_are_detected(tmp_path):
    file = tmp_path / "sizes.txt"
    file.write_text("1\n3\n")
    for values in (Values(size=3), Values(distribution="file", file=str(file))):
        source = ValueSource(values)
        assert source.check(1, source.make(1, 2, 3))
        assert not source.check(1, source.make(1, 2, 2))
        assert not source.check(1, b"")


@pytest.mark.parametrize("value", [b":" * 60, b"1:" * 30, b"1:-2:60:" + b"x" * 52, b"x" * 60])
def test_an_invalid_header(value):
    assert not ValueSource(ANY).check(1, value)


def test_values_cannot_be_compressed():
    for value in (ValueSource(ANY).filler(100_000), ValueSource(ANY).make(1, 2, 100_000)):
        assert len(zlib.compress(value, 9)) > 99_000
