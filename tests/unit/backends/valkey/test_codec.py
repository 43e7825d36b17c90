"""Conversion of records to strings, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends import MetaFlags, Record
from memlite.backends.remote.epoch import Epoch
from memlite.backends.valkey.codec import (
    VERSION_AT,
    DamagedError,
    Origin,
    decode,
    encode,
    versions_in,
)
from memlite.core.clock import Clock

META = st.builds(
    MetaFlags,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(0, 2**64 - 1),
)


def test_the_content_is_readable():
    record = Record(b"k", b"hello", 7, 1_796_052_600.0, accessed=1_796_049_000)
    content = encode(record, 0x5F2E01A9C0FFEE42, 3)
    assert content == b"m1 5f2e01a9c0ffee42 7 1796052600 1796049000 3 - -\nhello"
    first, last = VERSION_AT
    assert content[first : last + 1] == b"5f2e01a9c0ffee42"


@given(
    st.binary(max_size=50),
    st.integers(0, 2**32 - 1),
    st.just(0.0) | st.floats(1.0, 4e9),
    st.integers(1, 2**63 - 1),
    st.none() | META,
    st.lists(st.integers(1, 2**63 - 1), max_size=12),
)
def test_decoding_restores_the_record(value, flags, expires, version, meta, replaced):
    trail = b"-"
    for one in replaced:
        trail = Origin(1, trail, 1).followed(one)
    record = Record(b"k", value, flags, expires, 0, 5, False, meta)
    found = decode(b"k", encode(record, version, 4, trail), in_epoch(4))
    shown = None if meta == MetaFlags() else meta
    assert found._replace(token=None) == record._replace(version=version, meta_flags=shown)
    assert (found.token.epoch, found.token.as_of) == (4, 4)
    assert versions_in(found.token.trail) == replaced[::-1][:8]


def in_epoch(number):
    """Return the `Epoch` of a server that has seen this number."""
    epoch = Epoch(None, Clock())
    epoch.now(number)
    return epoch


def test_a_record_of_an_earlier_epoch_has_expired():
    content = encode(Record(b"k", b"hello"), 1, 3)
    found = decode(b"k", content, in_epoch(5))
    assert found.expires == 1.0
    assert (found.token.epoch, found.token.as_of) == (3, 5)


def test_a_record_of_a_later_epoch_advances_the_epoch():
    epoch = in_epoch(3)
    found = decode(b"k", encode(Record(b"k", b"hello"), 1, 5), epoch)
    assert found.expires == 0.0
    assert epoch.now() == 5


def test_damaged_content_does_not_advance_the_epoch():
    epoch = in_epoch(3)
    with pytest.raises(DamagedError):
        decode(b"k", b"m1 5f2e01a9c0ffee42 7 x 0 9 - -\nhello", epoch)
    assert epoch.now() == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"m2 5f2e01a9c0ffee42 7 0 0 3 - -\nhello",
        b"m1 5f2e01a9c0ffee42 7 0 0 3 -\nhello",
        b"m1 xx 7 0 0 3 - -\nhello",
        b"m1 5f2e01a9c0ffee42 7 0 0 3 z -\nhello",
        b"m1 5f2e01a9c0ffee42 7 0 0 3 - -",
    ],
)
def test_damaged_content_is_refused(content):
    with pytest.raises(DamagedError):
        decode(b"k", content, in_epoch(3))
