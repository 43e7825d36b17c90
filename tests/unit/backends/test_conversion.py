"""Records are converted to items and back without loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.backends import Record
from memlite.backends.conversion import item_of, record_of
from memlite.core.meta_flags import MetaFlags
from memlite.memory.item import FullItem, Item, wire_form

U64 = st.integers(0, 2**64 - 1)
META_FLAGS = st.builds(MetaFlags, st.booleans(), st.booleans(), st.booleans(), st.none() | U64)
RECORDS = st.builds(
    Record,
    key=st.binary(min_size=1, max_size=250).filter(lambda key: not {*b" \n"} & {*key}),
    value=st.binary(max_size=2000),
    flags=st.integers(0, 2**32 - 1),
    expires=st.just(0.0) | st.floats(1, 1e11),
    version=U64,
    accessed=st.integers(0, 2**33),
    fetched=st.booleans(),
    meta_flags=st.none() | META_FLAGS,
    token=st.none(),
)


@given(RECORDS)
def test_a_record_comes_back(record):
    item = item_of(record, FullItem)
    assert item.wire == wire_form(record.key, record.flags, record.value)
    assert record_of(record.key, item) == record
    assert item.content() == (item.value, item.flags, item.accessed, item.fetched)
    assert (item.value, item.flags) == (record.value, record.flags)


@pytest.mark.parametrize("key", [b"a b", b"a\nb", b" "])
@pytest.mark.parametrize("meta_flags", [None, MetaFlags(binary=True, unique=7)])
def test_a_key_that_the_text_protocol_cannot_express_is_kept_beside_the_item(key, meta_flags):
    item = item_of(Record(key, b"v", 5, meta_flags=meta_flags), FullItem)
    assert item.wire == b"VALUE  5 1\r\nv\r\nEND\r\n"
    expected = meta_flags or MetaFlags(binary=True)
    assert record_of(key, item) == Record(key, b"v", 5, meta_flags=expected)


def test_a_plain_item_becomes_a_record():
    item = Item(wire_form(b"k", 3, b"value"), 0)
    record = record_of(b"k", item)
    assert (record.key, record.value, record.flags) == (b"k", b"value", 3)
    assert (record.expires, record.version, record.fetched) == (0.0, 0, False)
    assert (record.meta_flags, record.token) == (None, None)


def test_the_kind_of_item_is_up_to_the_caller():
    class Copy(FullItem):
        __slots__ = ("until",)

    item = item_of(Record(b"k", b"v", version=7), Copy)
    assert isinstance(item, Copy)
    assert item.version == 7
