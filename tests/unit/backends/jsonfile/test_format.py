import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.backends import Record
from memlite.backends.conversion import item_of
from memlite.backends.jsonfile import format as lines
from memlite.backends.jsonfile.format import DamageError, Header
from memlite.core.meta_flags import MetaFlags
from memlite.memory import FullItem

KEYS = st.binary(max_size=250) | st.text(max_size=60).map(str.encode)
VALUES = st.binary(max_size=2000) | st.text(max_size=500).map(str.encode)
FLAGS = st.integers(0, 2**32 - 1)
EXPIRES = st.just(0.0) | st.integers(1, 2**63 - 1).map(float) | st.floats(0.001, 1e11)
VERSIONS = st.integers(0, 2**64 - 1)
STORED = st.integers(0, 2**40)
META_FLAGS = st.none() | st.builds(
    MetaFlags, st.booleans(), st.booleans(), st.booleans(), st.none() | VERSIONS
)
RECORDS = st.builds(
    Record,
    KEYS,
    VALUES,
    FLAGS,
    EXPIRES,
    VERSIONS,
    STORED,
    st.just(False),
    token=st.none(),
    meta_flags=META_FLAGS.filter(lambda meta: meta is None or any(meta) or meta.unique is not None),
)


def stored(record):
    """Return a record's key and item, with exactly the record's meta flags."""
    item = item_of(record, FullItem)
    item.meta_flags = record.meta_flags
    return record.key, item


def content(record):
    return record._replace(expires=0.0)


def journal(entries):
    """Return lines without their ends, and the checksum before each."""
    crcs, result, crc = [], [], 0
    for entry in entries:
        crcs.append(crc)
        line, crc = lines.checked_lines([entry], crc)
        result.append(line)
    return result, crcs


@given(
    st.text(max_size=60).map(str.encode), st.text(max_size=500).map(str.encode), VERSIONS, STORED
)
def test_the_template_of_plain_texts_gives_the_same_entry(key, value, version, second):
    texts = orjson.dumps(key.decode()), orjson.dumps(value.decode())
    entry = lines.put_entry(*stored(Record(key, value, version=version, accessed=second)))
    if b" " not in key and b"\n" not in key:  # other items have meta flags
        assert lines.PLAIN_PUT % (version, *texts, second) == entry


@given(RECORDS)
def test_a_stored_record_comes_back_from_the_journal(record):
    (line,), _ = journal([lines.put_entry(*stored(record))])
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    entry, _ = lines.read_entry(line[:-1], 0)
    assert entry.operation == "set"
    assert (entry.key, entry.version) == (record.key, record.version)
    assert content(entry.record) == content(record)
    assert entry.record.expires == pytest.approx(record.expires, abs=0.001)


@given(RECORDS)
def test_a_stored_record_comes_back_from_the_snapshot(record):
    line = lines.snapshot_line(*stored(record))
    assert b"\n" not in line
    for end in (b"", b",\n", b"\n", b",\r\n"):
        back = lines.parse_snapshot_line(line + end)
        assert content(back) == content(record)
        assert back.expires == pytest.approx(record.expires, abs=0.001)
        assert bool(back.expires) == bool(record.expires)


@given(VERSIONS, KEYS, st.just(0.0) | st.floats(0.001, 1e11))
def test_deletes_and_flushes_come_back(version, key, at):
    entries = [lines.delete_entry(version, key), lines.flush_entry(version, at)]
    (first, second), (_, crc) = journal(entries)
    delete, after = lines.read_entry(first[:-1], 0)
    assert (delete.operation, delete.version, delete.key) == ("delete", version, key)
    assert after == crc
    flush, _ = lines.read_entry(second[:-1], crc)
    assert (flush.operation, flush.version) == ("flush", version)
    assert flush.at == pytest.approx(at, abs=0.001)
    assert bool(flush.at) == bool(at)


@given(st.integers(1, 2**40), VERSIONS, st.just(0.0) | st.floats(0.001, 1e11))
def test_heads_come_back(number, version, at):
    (line,), _ = journal([lines.journal_header(Header(number, version))])
    assert lines.read_header(line[:-1])[0] == Header(number, version)
    head = lines.snapshot_head(number, version, at)
    assert lines.parse_snapshot_head(head) == (number, version, pytest.approx(at, abs=0.001))


@given(st.integers(0, 2**40), st.integers(0, 2**32 - 1))
def test_the_end_of_a_snapshot_comes_back(count, crc):
    assert lines.parse_snapshot_end(lines.snapshot_end(count, crc)) == (count, crc)
    assert lines.parse_snapshot_end(b'],"count":%d}' % count) == (count, None)


def test_text_is_readable():
    record = Record("schlüssel".encode(), "größe".encode(), 3, 1.5, 7, 9)
    assert lines.snapshot_line(*stored(record)).decode() == (
        '{"key":"schlüssel","value":"größe","flags":3,"expires":1.5,"stored":9,"cas":7}'
    )


@given(RECORDS, st.data())
def test_a_changed_byte_of_a_line_is_found(record, data):
    (line,), _ = journal([lines.put_entry(*stored(record))])
    damaged = bytearray(line[:-1])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamageError):
        lines.read_entry(bytes(damaged), 0)


@given(st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=2, unique=True), st.data())
def test_lines_that_are_missing_doubled_or_moved_are_found(keys, data):
    entries = [lines.delete_entry(number, key) for number, key in enumerate(keys)]
    written, _ = journal(entries)
    at = data.draw(st.integers(0, len(written) - 2))
    how = data.draw(st.sampled_from(["missing", "doubled", "swapped"]))
    if how == "missing":
        del written[at]
    elif how == "doubled":
        written.insert(at, written[at])
    else:
        written[at], written[at + 1] = written[at + 1], written[at]
    crc = 0
    with pytest.raises(DamageError):
        for line in written:
            _, crc = lines.read_entry(line[:-1], crc)


@given(st.binary(max_size=200))
def test_nothing_but_damage_is_raised_for_any_bytes(line):
    for read in (
        lines.read_header,
        lambda text: lines.read_entry(text, 0),
        lines.parse_snapshot_line,
        lines.parse_snapshot_head,
        lines.parse_snapshot_end,
    ):
        with pytest.raises(DamageError):
            read(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"crc":' + b"9" * 5000 + b',"n":1}',
        b'{"crc":' + "٣".encode() + b',"n":1}',
        b'{"crc":-1,"n":1}',
    ],
)
def test_an_invalid_checksum_is_damage(line):
    with pytest.raises(DamageError):
        lines.read_entry(line, 0)


@pytest.mark.parametrize(
    "line",
    [
        '{"key_base64":"é","value":"","cas":1}',
        '{"key_base64":"a","value":"","cas":1}',
        '{"key":1,"value":"","cas":1}',
        '{"key":"k","cas":1}',
        '{"key":"k","value":"v"}',
        '{"key":"k","value":"v","cas":-1}',
        '{"key":"k","value":"v","cas":true}',
        '{"key":"k","value":"v","cas":1,"flags":"0"}',
        '{"key":"k","value":"v","cas":1,"flags":-1}',
        '{"key":"k","value":"v","cas":1,"expires":"soon"}',
        '{"key":"k","value":"v","cas":1,"stored":1.5}',
        '{"key":"k","value":"\\ud800","cas":1}',
        "[]",
    ],
)
def test_an_item_that_was_mistyped_is_damage(line):
    with pytest.raises(DamageError):
        lines.parse_snapshot_line(line.encode())
