"""Names and content of a bucket's objects, and the trails of their writers."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]")

from memlite.backends import Record
from memlite.backends.gcs.codec import DamagedError, Trail, decode, encode, key_of, name_of

KEYS = st.binary(min_size=1, max_size=250)
NONCES = st.binary(min_size=8, max_size=8)


@given(KEYS)
def test_names_lead_back_to_keys(key):
    name = name_of(key)
    assert key_of(name) == key
    assert name.isascii()
    assert "/" not in name
    assert len(name) <= 337


@given(st.text(max_size=40))
def test_other_names_are_not_keys(name):
    key = key_of(name)
    assert key is None or name_of(key) == name


@pytest.mark.parametrize("name", ["", "epoch", "00-", "zz-a2V5", "xx", "00-a2V5=", "é9-a2V5"])
def test_names_that_resemble_valid_ones_are_not_keys(name):
    assert key_of(name) is None


def test_the_hash_in_a_name_spreads_keys_that_are_counted_up():
    assert len({name_of(b"user:%d" % number)[:2] for number in range(2000)}) == 256


@given(
    key=KEYS,
    value=st.binary(max_size=200),
    flags=st.integers(0, 2**32 - 1),
    expires=st.one_of(st.just(0.0), st.floats(1, 2**40)),
    stored=st.integers(0, 2**33),
    epoch=st.integers(0, 2**64 - 1),
    birth=NONCES,
    nonces=st.lists(NONCES, min_size=1, max_size=8),
)
def test_decoding_restores_the_record(key, value, flags, expires, stored, epoch, birth, nonces):
    record = Record(key, value, flags, expires, 5, stored)
    trail = Trail(birth, tuple(nonces))
    found, origin = decode(key, encode(record, epoch, trail), 77)
    assert found == record._replace(version=77)
    assert (origin.epoch, origin.trail) == (epoch, trail)


BODY = encode(Record(b"k", b"value", 1, 2.0), 3, Trail(b"12345678", (b"12345678",)))


@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_any_changed_byte_is_seen(at, change):
    damaged = BODY[:at] + bytes([BODY[at] ^ change]) + BODY[at + 1 :]
    with pytest.raises(DamagedError):
        decode(b"k", damaged, 1)


@given(st.integers(0, len(BODY) - 1))
def test_any_lost_byte_is_seen(length):
    with pytest.raises(DamagedError):
        decode(b"k", BODY[:length], 1)


@given(st.binary(max_size=100))
def test_foreign_content_is_refused(body):
    with pytest.raises(DamagedError):
        decode(b"k", body, 1)


def test_the_layout_stays():
    """Objects outlive the version of the program that wrote them."""
    rest = bytes.fromhex(
        "00000001"  # flags
        "4000000000000000"  # expires: 2.0
        "0000000000000000"  # stored
        "0000000000000003"  # epoch
    )
    rest += b"12345678" + b"12345678" + b"value"
    start = b"mlit" + bytes([1, 1]) + zlib.crc32(rest).to_bytes(4)
    assert start + rest == BODY


def nonce(writer, number):
    return writer.encode().ljust(4) + number.to_bytes(4)


def first(nonce):
    return Trail(nonce, (nonce,))


def test_a_trail_keeps_the_last_write_of_each_writer():
    trail = first(nonce("a", 1))
    for number in range(2, 50):
        trail = trail.followed_by(nonce("b", number), set())
        trail = trail.followed_by(nonce("a", number), set())
    assert trail == (nonce("a", 1), (nonce("a", 49), nonce("b", 49)))


def test_a_trail_keeps_nonces_its_writer_still_looks_for():
    trail = first(nonce("a", 1)).followed_by(nonce("a", 2), {nonce("a", 1)})
    assert trail.nonces == (nonce("a", 2), nonce("a", 1))
    assert trail.followed_by(nonce("a", 3), set()).nonces == (nonce("a", 3),)


def test_a_trail_knows_when_it_may_have_lost_a_nonce():
    before = first(nonce("x", 1))
    after = before
    for writer in "abcdefg":
        after = after.followed_by(nonce(writer, 1), set())
        assert not after.may_have_lost(before)
    after = after.followed_by(nonce("h", 1), set())
    assert after.nonces[0] == nonce("h", 1)
    assert len(after.nonces) == 8
    assert after.may_have_lost(before)
    assert after.birth == before.birth
