"""The remains of an unsynced write after a power failure, with its blocks in any order."""

import asyncio
import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlite.backends import Record
from memlite.backends.jsonfile.load import load
from memlite.core.errors import StartError
from tests.support.filestore import opened, put

BLOCK = 512
NEW = [(b"new%d" % number, bytes([97 + number]) * 700) for number in range(5)]
OLD = {b"old": b"1", b"changed": b"before"}


class Written:
    """A journal with a group of changes at its end.

    Attributes:
        data: the content of the journal.
        durable: the number of bytes that were synced before that group.
    """

    def __init__(self, folder, durability):
        self.path = folder / "cache.json"
        asyncio.run(self._fill(durability))
        (self.journal,) = folder.glob("cache.json.journal.*")

    async def _fill(self, durability):
        async with opened(self.path, kill=True, durability=durability) as backend:
            for key, value in OLD.items():
                await put(backend, key, value)
            await backend._journal._do(backend._journal._file.sync)
            journal = next(self.path.parent.glob("cache.json.journal.*"))
            self.durable = len(journal.read_bytes())
            changes = [backend.put(Record(key, value)) for key, value in NEW]
            changes.append(backend.put(Record(b"changed", b"after")))
            await asyncio.gather(*changes)
            self.data = journal.read_bytes()

    def left(self, tail):
        """Load the durable part followed by `tail`; return the items, or None if it is refused."""
        self.journal.write_bytes(self.data[: self.durable] + tail)
        try:
            items = load(self.path).items
        except StartError:
            return None
        return {key: item.value for key, item in items.items()}


@pytest.fixture(scope="module", params=["always", "everysec"])
def written(request, tmp_path_factory):
    return Written(tmp_path_factory.mktemp("torn"), request.param)


def check(found):
    """Check that durable items are there, and of the rest only written values."""
    assert found is not None, "refused"
    assert found[b"old"] == b"1"
    assert found[b"changed"] in (b"before", b"after")
    new = {key: value for key, value in found.items() if key not in OLD}
    assert new.items() <= dict(NEW).items()


def blocks_of(written):
    """Return the parts of the tail that are in different blocks of the file."""
    first = BLOCK - written.durable % BLOCK
    tail = written.data[written.durable :]
    return [tail[:first], *(tail[at : at + BLOCK] for at in range(first, len(tail), BLOCK))]


def test_any_blocks_may_be_missing(written):
    blocks = blocks_of(written)
    assert 5 < len(blocks) < 12
    for there in itertools.product((True, False), repeat=len(blocks)):
        tail = b"".join(
            block if here else bytes(len(block)) for block, here in zip(blocks, there, strict=True)
        )
        check(written.left(tail))


def test_the_file_may_have_any_size(written):
    tail = written.data[written.durable :]
    for size in range(0, len(tail), 7):
        for more in (b"", b"\0" * 100):
            check(written.left(tail[:size] + more))


@pytest.mark.parametrize("seed", range(50))
def test_garbage_may_be_anywhere(written, seed):
    rng = random.Random(seed)
    tail = b"".join(
        block if rng.random() < 0.6 else rng.randbytes(len(block)) for block in blocks_of(written)
    )
    check(written.left(tail))


def test_only_the_last_byte_may_be_missing(written):
    tail = written.data[written.durable :]
    check(written.left(tail[:-1] + b"\0"))
    check(written.left(tail[:-1]))


async def test_the_first_block_of_a_journal_may_be_missing(tmp_path):
    """Without a sync, it may be written after the others."""
    path = tmp_path / "cache.json"
    async with opened(path, kill=True, durability="none") as backend:
        for key, value in NEW:
            await put(backend, key, value)
    (journal,) = tmp_path.glob("cache.json.journal.*")
    data = re.sub(rb',"synced":\d+(?=}\n)', b"", journal.read_bytes())
    for first in (bytes(BLOCK), random.Random(1).randbytes(BLOCK), b"\n" * BLOCK):
        journal.write_bytes(first + data[BLOCK:])
        assert not load(path).items
        assert journal.read_bytes() == b""
        dropped = journal.with_name(f"{journal.name}.dropped")
        assert dropped.read_bytes() == first + data[BLOCK:]
        dropped.unlink()
    # This is no missing block, and neither is what a server has noted to be durable.
    note = b'{"crc":1,"op":"synced","synced":%d}\n' % len(data)
    for damaged in (b"#" + data[1:], b"{{crc" + data[5:], bytes(BLOCK) + data[BLOCK:] + note):
        journal.write_bytes(damaged)
        with pytest.raises(StartError, match="is damaged at line 1"):
            load(path)
        assert journal.read_bytes() == damaged


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_durable_data_is_not_dropped(written, data):
    """Once the file says that the group is durable, damage in it is refused."""
    marker = written.data + b'{"crc":1,"op":"synced","synced":%d}\n' % len(written.data)
    at = data.draw(st.integers(0, len(written.data) - 1))
    size = data.draw(st.integers(1, min(BLOCK, len(written.data) - at)))
    filler = data.draw(st.sampled_from([b"\0", b"x"]))
    damaged = marker[:at] + filler * size + marker[at + size :]
    if damaged != marker:
        written.journal.write_bytes(damaged)
        with pytest.raises(StartError, match="is damaged at line"):
            load(written.path)
        assert written.journal.read_bytes() == damaged


@pytest.mark.parametrize("durability", ["always", "everysec"])
async def test_an_idle_server_says_how_far_its_journal_is_durable(tmp_path, durability, caplog):
    path = tmp_path / "cache.json"
    async with opened(path, kill=True, durability=durability) as backend:
        await put(backend, b"key", b"value")
        backend.tick()
        await backend._journal._do(lambda: None)
        (journal,) = tmp_path.glob("cache.json.journal.*")
        data = journal.read_bytes()
        backend.tick()
        await backend._journal._do(lambda: None)
        assert journal.read_bytes() == data
    whole, marker = data.rsplit(b"\n", 2)[0] + b"\n", data.splitlines()[-1]
    assert marker.endswith(b'"op":"synced","synced":%d}' % len(whole))
    # An acknowledged change that is zeroed is not taken for a torn write.
    zeroed = whole[:-40] + bytes(40) + marker + b"\n"
    journal.write_bytes(zeroed)
    with pytest.raises(StartError, match="is damaged at line 2"):
        load(path)
    assert not caplog.records


async def test_dropped_data_is_kept_in_a_file(tmp_path, caplog):
    path = tmp_path / "cache.json"
    async with opened(path, kill=True) as backend:
        await put(backend, b"key", b"value")
    (journal,) = tmp_path.glob("cache.json.journal.*")
    with journal.open("ab") as file:
        file.write(b'{"crc":12\0\0\0')
    assert load(path).items[b"key"].value == b"value"
    assert journal.with_name(f"{journal.name}.dropped").read_bytes() == b'{"crc":12\0\0\0'
    assert "dropped its last 12 bytes, an incomplete write" in caplog.text
    assert f"the dropped bytes were saved to {journal.name}.dropped" in caplog.text


def test_a_journal_of_the_first_format_is_read(tmp_path):
    path = tmp_path / "cache.json"
    path.write_bytes(
        b'{"memlite":"snapshot","format":1,"journal":1,"n":0,"items":[\n],"count":0}\n'
    )
    journal = tmp_path / "cache.json.journal.1"
    journal.write_bytes(OLD_JOURNAL + b'{"crc":12\0\0')
    assert {key: item.value for key, item in load(path).items.items()} == {b"user:2": b"Grace"}
    assert journal.read_bytes() == OLD_JOURNAL


# Written by a version that did not record how far the journal was durable.
OLD_JOURNAL = (
    b'{"crc":213267219,"memlite":"journal","format":1,"journal":1,"n":0}\n'
    b'{"crc":228965699,"n":1,"op":"set","key":"user:2","value":"Grace","stored":1795000001}\n'
    b'{"crc":461276137,"n":2,"op":"delete","key":"raw"}\n'
)
