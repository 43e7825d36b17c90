"""The bucket backend when requests fail while another server changes the same objects.

A script determines how the emulator handles each request. The other server makes its changes in the
pause before the request is repeated.
"""

import contextlib
import time
from collections import deque

import pytest

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]")

from memlite.backends import ANY, Record
from memlite.backends.gcs import make
from memlite.backends.gcs.codec import name_of
from memlite.backends.registry import Context, parse_url
from memlite.backends.remote.call import Call
from memlite.backends.remote.epoch import Schedule
from memlite.core.errors import StorageError, VersionConflict
from memlite.testing.gcs_emulator import Faults, GcsEmulator
from memlite.testing.gcs_emulator.faults import Decision

KEY = b"key"
LOST = ("lose-reset", "lose-503")
FAILED = ("error", "reset")


class Script(Faults):
    """Applies the scripted outcomes to the next requests, and none to later ones."""

    def __init__(self):
        super().__init__()
        self.deeds = deque()

    def decide(self, *, on_objects, reads):
        return Decision(self.deeds.popleft()) if on_objects and self.deeds else Decision()


class Scene:
    """The backends of two servers on one emulator."""

    def __init__(self, emulator, one, two, monkeypatch):
        self.emulator = emulator
        self.one = one
        self.two = two
        self._monkeypatch = monkeypatch

    def next(self, *deeds, meanwhile=None):
        """Set the outcomes of the next requests, and an action before the first is repeated."""
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
def options():
    return ""


@pytest.fixture
async def scene(monkeypatch, options):
    async with GcsEmulator(["bucket"], faults=Script()) as emulator:
        url = f"gs://bucket/p?endpoint={emulator.url}{options}"
        async with opened(url) as one, opened(url) as two:
            yield Scene(emulator, one, two, monkeypatch)


# Most tests run on servers that make every write conditional; these also run on others.
either_mode = pytest.mark.parametrize("options", ["", "&strict=0"], ids=["strict", "lax"])
lax = pytest.mark.parametrize("options", ["&strict=0"], ids=["lax"])


def of(value):
    return Record(KEY, value)


async def increment(backend):
    item = await backend.get(KEY)
    await backend.put(of(b"%d" % (int(item.value) + 1)), item)


@pytest.mark.parametrize("deed", LOST)
@pytest.mark.parametrize("there", [False, True])
async def test_an_unacknowledged_conditional_write_is_recognised_as_done(scene, deed, there):
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
async def test_a_conditional_write_that_was_not_executed_is_repeated(scene, deed, there):
    if there:
        await scene.two.put(of(b"0"))
    scene.next(deed, deed)
    await scene.one.put(of(b"1"), await scene.one.get(KEY) if there else None)
    assert await scene.value() == b"1"
    assert scene.lost_acknowledgements() == 0


@pytest.mark.parametrize("deed", LOST)
@pytest.mark.parametrize("times", [1, 30])
async def test_an_unacknowledged_write_is_recognised_after_later_changes(scene, deed, times):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)

    async def meanwhile():
        for _ in range(times):
            await increment(scene.two)

    scene.next(deed, meanwhile=meanwhile)
    version = await scene.one.put(of(b"1"), read)
    assert await scene.value() == b"%d" % (1 + times)
    # No object has its version any more.
    assert 2**63 <= version < 2**64
    item = of(b"1")._replace(version=version)
    with pytest.raises(VersionConflict):
        await scene.one.put(of(b"x"), item)
    with pytest.raises(VersionConflict):
        await scene.one.delete(KEY, item)


@pytest.mark.parametrize("deed", FAILED)
async def test_a_conditional_write_overtaken_by_others_is_a_conflict(scene, deed):
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
async def test_one_of_two_concurrent_adds_succeeds(scene, deed):
    assert await scene.one.get(KEY) is None
    scene.next(deed, meanwhile=lambda: scene.two.put(of(b"two"), None))
    with pytest.raises(VersionConflict):
        await scene.one.put(of(b"one"), None)
    assert await scene.value() == b"two"


async def test_if_too_many_writers_hide_the_outcome_it_is_an_error(scene):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)
    url = f"gs://bucket/p?endpoint={scene.emulator.url}"

    async def meanwhile():
        for _ in range(8):
            async with opened(url) as other:
                await increment(other)

    scene.next("lose-reset", meanwhile=meanwhile)
    with pytest.raises(StorageError, match="changed the object since; the change may or may not"):
        await scene.one.put(of(b"1"), read)
    assert await scene.value() == b"9"


@pytest.mark.parametrize("deed", LOST)
@either_mode
async def test_an_unacknowledged_set_does_not_undo_later_changes(scene, deed):
    assert await scene.one.get(KEY) is None
    scene.next(deed, meanwhile=lambda: increment(scene.two))
    await scene.one.put(of(b"10"), ANY)
    assert await scene.value() == b"11"
    assert scene.lost_acknowledgements() == 1


@pytest.mark.parametrize("deed", FAILED)
async def test_a_set_that_was_not_executed_overwrites_changes_made_meanwhile(scene, deed):
    await scene.two.put(of(b"0"))
    scene.next(deed, meanwhile=lambda: increment(scene.two))
    await scene.one.put(of(b"10"))
    assert await scene.value() == b"10"
    scene.next(deed, meanwhile=lambda: scene.two.delete(KEY))
    await scene.one.put(of(b"11"))
    assert await scene.value() == b"11"


async def test_a_set_that_fails_repeatedly_is_eventually_executed(scene):
    await scene.two.put(of(b"0"))
    # The write is not executed, the read of the current object fails, and the conditional write is
    # not acknowledged.
    scene.next("error", "reset", "serve", "lose-503", meanwhile=lambda: increment(scene.two))
    await scene.one.put(of(b"10"))
    assert await scene.value() == b"10"


@pytest.mark.parametrize("deed", LOST)
async def test_an_unacknowledged_change_is_recognised_after_a_set(scene, deed):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)

    async def meanwhile():
        assert (await scene.two.get(KEY)).value == b"1"
        await scene.two.put(of(b"2"))

    scene.next(deed, meanwhile=meanwhile)
    await scene.one.put(of(b"1"), read)
    assert await scene.value() == b"2"
    assert scene.lost_acknowledgements() == 1


@pytest.mark.parametrize("deed", LOST)
@pytest.mark.parametrize("replacing", [ANY, None])
async def test_an_unacknowledged_write_is_not_made_again_after_a_delete(scene, deed, replacing):
    assert await scene.one.get(KEY) is None

    async def meanwhile():
        await scene.two.delete(KEY, await scene.two.get(KEY))

    scene.next(deed, meanwhile=meanwhile)
    await scene.one.put(of(b"1"), replacing)
    assert await scene.value() is None
    assert scene.lost_acknowledgements() == 1


@pytest.mark.parametrize("deed", LOST)
async def test_an_unacknowledged_set_is_not_made_again_after_a_set(scene, deed):
    await scene.one.put(of(b"0"))
    scene.next(deed, meanwhile=lambda: scene.two.put(of(b"two")))
    await scene.one.put(of(b"one"))
    assert await scene.value() == b"two"
    assert scene.lost_acknowledgements() == 1


async def test_an_abandoned_request_that_arrives_late_changes_nothing(scene, monkeypatch):
    await scene.one.put(of(b"0"))
    requests = scene.one._client.requests
    sent = []
    send = requests._send

    async def note(*request):
        sent.append(request)
        return await send(*request)

    monkeypatch.setattr(requests, "_send", note)
    scene.next("error")
    await scene.one.put(of(b"1"))
    await scene.two.put(of(b"2"))
    late = await send(*sent[0])
    assert late.status == 412
    assert await scene.value() == b"2"


@pytest.mark.parametrize("deed", FAILED)
@pytest.mark.parametrize("new", [False, True])
async def test_one_of_two_deletes_of_an_item_succeeds(scene, deed, new):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)

    async def meanwhile():
        await scene.two.delete(KEY, await scene.two.get(KEY))
        if new:
            await scene.two.put(of(b"new"))

    scene.next(deed, meanwhile=meanwhile)
    with pytest.raises(VersionConflict):
        await scene.one.delete(KEY, read)
    assert await scene.value() == (b"new" if new else None)


@lax
@pytest.mark.parametrize("deed", [*LOST, *FAILED])
@pytest.mark.parametrize("new", [False, True])
async def test_without_a_tombstone_the_outcome_of_a_delete_is_unknown(scene, deed, new):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)

    async def meanwhile():
        with contextlib.suppress(AttributeError, VersionConflict):
            await scene.two.delete(KEY, await scene.two.get(KEY) or read._replace(token=None))
        if new:
            await scene.two.put(of(b"new"))

    scene.next(deed, meanwhile=meanwhile)
    with pytest.raises(StorageError, match="the change may or may not have been made"):
        await scene.one.delete(KEY, read)
    assert await scene.value() == (b"new" if new else None)


@lax
@pytest.mark.parametrize("there", [False, True])
async def test_without_conditions_the_outcome_of_a_set_is_unknown(scene, there):
    if there:
        await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)
    scene.next("error", meanwhile=lambda: scene.two.put(of(b"two")))
    with pytest.raises(StorageError, match="the change may or may not have been made"):
        await scene.one.put(of(b"1"), read)
    assert await scene.value() == b"two"


@pytest.mark.parametrize("deed", LOST)
async def test_an_unacknowledged_delete_is_recognised_as_done(scene, deed):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)
    scene.next(deed)
    await scene.one.delete(KEY, read)
    assert await scene.value() is None
    with pytest.raises(VersionConflict):
        await scene.one.delete(KEY, read)


@pytest.mark.parametrize("deed", LOST)
@pytest.mark.parametrize("replacing", [ANY, None])
async def test_a_repeated_delete_does_not_remove_a_newer_item(scene, deed, replacing):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)
    scene.next(deed, meanwhile=lambda: scene.two.put(of(b"new"), replacing))
    await scene.one.delete(KEY, read)
    assert await scene.value() == b"new"


@pytest.mark.parametrize("deed", FAILED)
async def test_a_delete_overtaken_by_others_is_a_conflict(scene, deed):
    await scene.two.put(of(b"0"))
    read = await scene.one.get(KEY)
    scene.next(deed, meanwhile=lambda: increment(scene.two))
    with pytest.raises(VersionConflict):
        await scene.one.delete(KEY, read)
    assert await scene.value() == b"1"


@pytest.mark.parametrize("deed", [*LOST, *FAILED])
async def test_an_unconditional_delete_removes_any_version(scene, deed):
    await scene.two.put(of(b"0"))
    scene.next(deed)
    await scene.one.delete(KEY)
    assert await scene.value() is None
    scene.next(deed)
    await scene.one.delete(KEY)


@pytest.mark.parametrize("deed", [*LOST, *FAILED])
async def test_a_flush_is_retried(scene, deed):
    await scene.one.put(of(b"0"))
    scene.next("serve", deed)
    await scene.one.flush()
    assert (await scene.one.get(KEY)).expires == 1.0
    item = await scene.one.get(KEY)
    await scene.one.put(of(b"1"), item)
    assert await scene.value() == b"1"


@pytest.mark.parametrize("deed", LOST)
@pytest.mark.parametrize("again", [False, True])
async def test_an_unacknowledged_flush_is_not_made_again(scene, deed, again):
    await scene.one.put(of(b"0"))

    async def meanwhile():
        await scene.two._epoch.refresh()
        if again:
            await scene.two.flush()
        await scene.two.put(of(b"1"))

    scene.next("serve", deed, meanwhile=meanwhile)
    await scene.one.flush()
    assert (await scene.one.get(KEY)).expires == 0.0


@pytest.mark.parametrize("deed", LOST)
async def test_an_unacknowledged_delayed_flush_is_recognised(scene, deed):
    await scene.one.put(of(b"0"))
    at = time.time() + 1000
    scene.next("serve", deed)
    await scene.one.flush(at)
    assert scene.one._epoch._schedule == Schedule(0, at, 1)


@pytest.mark.parametrize("deed", FAILED)
async def test_reads_are_retried(scene, deed):
    await scene.one.put(of(b"0"))
    scene.next(deed, deed, deed)
    assert (await scene.one.get(KEY)).value == b"0"
    scene.next(deed)
    assert [found.key async for found in scene.one.scan()] == [KEY]


async def test_a_damaged_object_is_not_read_as_an_item(scene, caplog):
    await scene.one.put(Record(b"other", b"1"))
    objects = scene.emulator.store.bucket("bucket").objects
    name = f"p/{name_of(KEY)}"
    await scene.one.put(of(b"0"))
    read = await scene.one.get(KEY)
    damaged = objects[name]
    object.__setattr__(damaged, "content", damaged.content[:-1] + b"x")
    with pytest.raises(StorageError, match=f"object {name} is damaged, or was not written"):
        await scene.one.get(KEY)
    with pytest.raises(StorageError):
        await scene.one.get_many([b"other", KEY])
    with pytest.raises(VersionConflict):
        await scene.one.put(of(b"1"), None)
    assert [found.key async for found in scene.one.scan()] == [b"other"]
    assert f"skipped object {name}: damaged, or not written by memlite" in caplog.messages
    # A set stores the same, whether it succeeds at once or after retries.
    scene.next("error")
    await scene.one.put(of(b"2"))
    assert await scene.value() == b"2"
    with pytest.raises(VersionConflict):
        await scene.one.delete(KEY, read)
