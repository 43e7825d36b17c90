"""What the bucket backend makes of requests that fail, and of what others do meanwhile.

The emulator does to each request what a script says; what others do meanwhile is done in the pause
before the request is tried again.
"""

import contextlib
from collections import deque

import pytest

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]")

from memlite.backends import ANY, Record
from memlite.backends.gcs import make
from memlite.backends.gcs.codec import name_of
from memlite.backends.gcs.requests import Call
from memlite.backends.registry import Context, parse_url
from memlite.core.errors import StorageError, VersionConflict
from memlite.testing.gcs_emulator import Faults, GcsEmulator
from memlite.testing.gcs_emulator.faults import Decision

KEY = b"key"
LOST = ("lose-reset", "lose-503")
FAILED = ("error", "reset")


class Script(Faults):
    """Does to the next requests what is written, and then nothing."""

    def __init__(self):
        super().__init__()
        self.deeds = deque()

    def decide(self, *, on_objects, reads):
        return Decision(self.deeds.popleft()) if on_objects and self.deeds else Decision()


class Scene:
    """Two servers' backends on one emulator."""

    def __init__(self, emulator, one, two, monkeypatch):
        self.emulator = emulator
        self.one = one
        self.two = two
        self._monkeypatch = monkeypatch

    def next(self, *deeds, meanwhile=None):
        """Let this happen to the requests that follow; and before the first of them is repeated."""
        self.emulator.faults.deeds.extend(deeds)
        pending = [meanwhile] if meanwhile else []

        async def pause(call):
            while pending:
                await pending.pop()()

        self._monkeypatch.setattr(Call, "pause", pause)

    async def value(self):
        values = {
            (item and item.value) for item in [await self.one.get(KEY), await self.two.get(KEY)]
        }
        (value,) = values
        return value

    def lost_acknowledgements(self):
        return self.one.stats()["lost_acknowledgements"]


@contextlib.asynccontextmanager
async def opened(url, **options):
    backend = make(parse_url(url), Context(**options))
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


@pytest.fixture
async def scene(monkeypatch):
    async with GcsEmulator(["bucket"], faults=Script()) as emulator:
        url = f"gs://bucket/p?endpoint={emulator.url}"
        async with opened(url) as one, opened(url) as two:
            yield Scene(emulator, one, two, monkeypatch)


def of(value):
    return Record(KEY, value)


async def increment(backend):
    item = await backend.get(KEY)
    await backend.put(of(b"%d" % (int(item.value) + 1)), item)


@pytest.mark.parametrize("deed", LOST)
@pytest.mark.parametrize("there", [False, True])
async def test_a_conditional_write_that_was_not_acknowledged_is_found(scene, deed, there):
    if there:
        await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)
    scene.next(deed)
    version = await scene.one.put(of(b"1"), read)
    found = await scene.two.get(KEY)
    assert (found.value, found.version) == (b"1", version)
    assert scene.lost_acknowledgements() == 1


@pytest.mark.parametrize("deed", FAILED)
@pytest.mark.parametrize("there", [False, True])
async def test_one_that_was_not_carried_out_is_tried_again(scene, deed, there):
    if there:
        await scene.two.put(of(b"0"))
    scene.next(deed, deed)
    await scene.one.put(of(b"1"), await scene.one.get(KEY) if there else None)
    assert await scene.value() == b"1"
    assert scene.lost_acknowledgements() == 0


@pytest.mark.parametrize("deed", LOST)
@pytest.mark.parametrize("times", [1, 30])
async def test_one_that_others_have_built_on_since_is_found_too(scene, deed, times):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)

    async def meanwhile():
        for _ in range(times):
            await increment(scene.two)

    scene.next(deed, meanwhile=meanwhile)
    version = await scene.one.put(of(b"1"), read)
    assert await scene.value() == b"%d" % (1 + times)
    # Its version is one that nothing has any more.
    assert 2**63 <= version < 2**64
    item = of(b"1")._replace(version=version)
    with pytest.raises(VersionConflict):
        await scene.one.put(of(b"x"), item)
    with pytest.raises(VersionConflict):
        await scene.one.delete(KEY, item)


@pytest.mark.parametrize("deed", FAILED)
async def test_one_that_others_outran_is_a_conflict(scene, deed):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)
    scene.next(deed, meanwhile=lambda: increment(scene.two))
    with pytest.raises(VersionConflict):
        await scene.one.put(of(b"1"), read)
    assert await scene.value() == b"1"
    read = await scene.one.get(KEY)
    scene.next(deed, meanwhile=lambda: scene.two.delete(KEY))
    with pytest.raises(VersionConflict):
        await scene.one.put(of(b"1"), read)
    assert await scene.value() is None


@pytest.mark.parametrize("deed", FAILED)
async def test_of_two_that_add_one_wins(scene, deed):
    scene.next(deed, meanwhile=lambda: scene.two.put(of(b"two"), None))
    with pytest.raises(VersionConflict):
        await scene.one.put(of(b"one"), None)
    assert await scene.value() == b"two"


async def test_too_many_writers_to_tell_is_an_error_and_no_guess(scene):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)
    url = f"gs://bucket/p?endpoint={scene.emulator.url}"

    async def meanwhile():
        for _ in range(8):
            async with opened(url) as other:
                await increment(other)

    scene.next("lose-reset", meanwhile=meanwhile)
    with pytest.raises(StorageError, match="too many writers of one key; the change may have"):
        await scene.one.put(of(b"1"), read)
    assert await scene.value() == b"9"


@pytest.mark.parametrize("deed", LOST)
async def test_a_set_that_was_not_acknowledged_does_not_undo_what_built_on_it(scene, deed):
    scene.next(deed, meanwhile=lambda: increment(scene.two))
    await scene.one.put(of(b"10"), ANY)
    assert await scene.value() == b"11"
    assert scene.lost_acknowledgements() == 1


@pytest.mark.parametrize("deed", FAILED)
async def test_a_set_that_was_not_carried_out_comes_after_what_others_did(scene, deed):
    await scene.two.put(of(b"0"))
    scene.next(deed, meanwhile=lambda: increment(scene.two))
    await scene.one.put(of(b"10"))
    assert await scene.value() == b"10"
    scene.next(deed, meanwhile=lambda: scene.two.delete(KEY))
    await scene.one.put(of(b"11"))
    assert await scene.value() == b"11"


async def test_a_set_that_fails_and_fails_gets_there(scene):
    await scene.two.put(of(b"0"))
    # Not carried out; the look at what is there fails; the conditional write is not acknowledged.
    scene.next("error", "reset", "serve", "lose-503", meanwhile=lambda: increment(scene.two))
    await scene.one.put(of(b"10"))
    assert await scene.value() == b"10"


@pytest.mark.parametrize("deed", LOST)
async def test_a_removal_that_was_not_acknowledged_is_found(scene, deed):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)
    scene.next(deed)
    await scene.one.delete(KEY, read)
    assert await scene.value() is None
    with pytest.raises(VersionConflict):
        await scene.one.delete(KEY, read)


@pytest.mark.parametrize("deed", LOST)
@pytest.mark.parametrize("replacing", [ANY, None])
async def test_it_does_not_remove_what_was_stored_since(scene, deed, replacing):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)
    scene.next(deed, meanwhile=lambda: scene.two.put(of(b"new"), replacing))
    await scene.one.delete(KEY, read)
    assert await scene.value() == b"new"


@pytest.mark.parametrize("deed", FAILED)
async def test_a_removal_that_others_outran_is_a_conflict(scene, deed):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)
    scene.next(deed, meanwhile=lambda: increment(scene.two))
    with pytest.raises(VersionConflict):
        await scene.one.delete(KEY, read)
    assert await scene.value() == b"1"


@pytest.mark.parametrize("deed", [*LOST, *FAILED])
async def test_removing_whatever_is_there(scene, deed):
    await scene.two.put(of(b"0"))
    scene.next(deed)
    await scene.one.delete(KEY)
    assert await scene.value() is None
    scene.next(deed)
    await scene.one.delete(KEY)


@pytest.mark.parametrize("deed", [*LOST, *FAILED])
async def test_a_flush_gets_there(scene, deed):
    await scene.one.put(of(b"0"))
    scene.next("serve", deed)
    await scene.one.flush()
    assert (await scene.one.get(KEY)).expires == 1.0
    item = await scene.one.get(KEY)
    await scene.one.put(of(b"1"), item)
    assert await scene.value() == b"1"


@pytest.mark.parametrize("deed", FAILED)
async def test_reads_are_tried_again(scene, deed):
    await scene.one.put(of(b"0"))
    scene.next(deed, deed, deed)
    assert (await scene.one.get(KEY)).value == b"0"
    scene.next(deed)
    assert [found.key async for found in scene.one.scan()] == [KEY]


async def test_what_is_damaged_is_not_taken_for_an_item(scene, caplog):
    await scene.one.put(Record(b"other", b"1"))
    objects = scene.emulator.store.bucket("bucket").objects
    name = f"p/{name_of(KEY)}"
    await scene.one.put(of(b"0"))
    read = await scene.one.get(KEY)
    damaged = objects[name]
    object.__setattr__(damaged, "content", damaged.content[:-1] + b"x")
    with pytest.raises(StorageError, match=f"the object {name} is damaged, or not memlite's"):
        await scene.one.get(KEY)
    with pytest.raises(StorageError):
        await scene.one.get_many([b"other", KEY])
    with pytest.raises(VersionConflict):
        await scene.one.put(of(b"1"), None)
    assert [found.key async for found in scene.one.scan()] == [b"other"]
    assert f"passed over the object {name}: it is damaged, or not memlite's" in caplog.messages
    # What set stores does not depend on it, whether it gets there at once or not.
    scene.next("error")
    await scene.one.put(of(b"2"))
    assert await scene.value() == b"2"
    with pytest.raises(VersionConflict):
        await scene.one.delete(KEY, read)
