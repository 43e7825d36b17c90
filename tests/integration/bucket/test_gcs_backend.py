"""The bucket backend on the emulator: flushes, listing, limits, outages, tokens, startup."""

import asyncio
import contextlib
import logging
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]")

import google.auth
from google.api_core.exceptions import Forbidden
from google.auth.credentials import Credentials
from google.auth.exceptions import DefaultCredentialsError, RefreshError

from memlite.backends import Record
from memlite.backends.gcs import make, startup
from memlite.backends.gcs.codec import name_of
from memlite.backends.gcs.credentials import Authorization, NoTokenError
from memlite.backends.registry import Context, parse_url
from memlite.core.clock import Clock
from memlite.core.errors import StartError, StorageError, VersionConflict
from memlite.testing.gcs_emulator import GcsEmulator, Store
from memlite.testing.gcs_emulator.model import Attributes
from tests.support.patience import patiently

START = 1_800_000_000.0


@pytest.fixture
async def emulator():
    async with GcsEmulator(["bucket"]) as emulator:
        yield emulator


@contextlib.asynccontextmanager
async def opened(emulator, options="", prefix="p", **settings):
    if "deadline=" not in options:
        options += "&deadline=60"  # for a busy machine
    url = f"gs://bucket/{prefix}?endpoint={emulator.url}{options}"
    backend = make(parse_url(url), Context(**settings))
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


async def value(backend, key, now=START):
    """Return the value if the record has not expired."""
    item = await backend.get(key)
    return None if item is None or 0 < item.expires <= now else item.value


def put(backend, key, value=b"1", *replacing, expires=0.0):
    return backend.put(Record(key, value, expires=expires), *replacing)


async def poll(backend):
    """Run the once-a-second tick, which polls the epoch."""
    backend.tick()
    await asyncio.wait([backend._refresh])


def still(seconds=0.0):
    clock = Clock(lambda: 0.0, lambda: START)
    clock.advance(seconds)
    return clock


# Races


async def count_up(backend, key, turns):
    for _ in range(turns):
        while True:
            item = await backend.get(key)
            with contextlib.suppress(VersionConflict):
                await put(backend, key, b"%d" % (int(item.value) + 1), item)
                break


@pytest.mark.parametrize("lost", ["reset", "503"])
async def test_counters_are_exact_in_spite_of_faults(emulator, lost):
    async with opened(emulator, "&deadline=30") as one, opened(emulator, "&deadline=30") as two:
        for key in (b"a", b"b"):
            await put(one, key, b"0")
        emulator.faults.set(error_rates={503: 0.1}, lost_ack_rate=0.2, lost_ack=lost)
        await asyncio.gather(
            *(count_up(backend, key, 6) for backend in (one, two) for key in (b"a", b"b") * 3)
        )
        emulator.faults.clear()
        assert [await value(two, key) for key in (b"a", b"b")] == [b"36", b"36"]
        assert one.stats()["lost_acknowledgements"] + two.stats()["lost_acknowledgements"] > 0


async def test_one_of_many_concurrent_adds_and_deletes_succeeds(emulator):
    async def add(backend, name):
        with contextlib.suppress(VersionConflict):
            await put(backend, b"key", name, None)
            return name

    async with opened(emulator, "&deadline=30") as one, opened(emulator, "&deadline=30") as two:
        emulator.faults.set(error_rates={503: 0.1}, lost_ack_rate=0.1, lost_ack="mixed")
        for _ in range(8):
            names = [b"%d" % number for number in range(8)]
            won = await asyncio.gather(
                *(add((one, two)[number % 2], name) for number, name in enumerate(names))
            )
            (winner,) = filter(None, won)
            item = await two.get(b"key")
            assert item.value == winner
            await two.delete(b"key", item)


# Flushes


async def test_a_flush_reaches_other_servers_with_their_next_tick(emulator):
    async with opened(emulator) as one, opened(emulator) as two:
        await put(one, b"key")
        await one.flush()
        assert await value(one, b"key") is None
        assert await value(two, b"key") == b"1"
        await poll(two)
        assert await value(two, b"key") is None
        # A flushed item can be replaced, like an expired one.
        await put(two, b"key", b"2", await two.get(b"key"))
        assert await value(one, b"key") == b"2"


async def test_items_stored_after_a_flush_announce_it_to_other_servers(emulator):
    async with opened(emulator) as one, opened(emulator) as two:
        await put(one, b"old")
        await one.flush()
        await put(one, b"new")
        assert await value(two, b"old") == b"1"
        assert await value(two, b"new") == b"1"
        assert await value(two, b"old") is None


async def test_items_derived_from_flushed_ones_are_flushed_too(emulator):
    async with opened(emulator) as one, opened(emulator) as two:
        await put(one, b"key")
        read = await two.get(b"key")
        await one.flush()
        await poll(two)
        await put(two, b"key", b"2", read)
        assert await value(one, b"key") is None
        assert await value(two, b"key") is None


async def test_a_delayed_flush_happens_on_all_servers_at_its_time(emulator):
    clocks = still(), still()
    async with opened(emulator, clock=clocks[0]) as one, opened(emulator, clock=clocks[1]) as two:
        await put(one, b"key")
        await one.flush(START + 10)
        await poll(two)
        for seconds, expected in ((9, b"1"), (2, None)):
            for clock in clocks:
                clock.advance(seconds)
            assert await value(one, b"key") == await value(two, b"key") == expected
        await put(two, b"key", b"2")
        async with opened(emulator, clock=still(11)) as three:
            assert await value(three, b"key") == b"2"


async def test_the_epoch_does_not_decrease_when_its_object_is_lost(emulator):
    async with opened(emulator) as one:
        await put(one, b"old")
        await one.flush()
        await put(one, b"new")
        emulator.store.bucket("bucket").remove("p/epoch")
        await poll(one)
        assert await value(one, b"old") is None
        async with opened(emulator) as two:
            assert await value(two, b"new") == b"1"
            assert await value(two, b"old") is None
            await two.flush()
        await poll(one)
        assert await value(one, b"new") is None


async def test_the_known_epoch_is_used_while_it_cannot_be_read(emulator):
    async with opened(emulator, "&timeout=2&deadline=2") as one:
        await one.flush()
        await put(one, b"key")
        emulator.faults.begin_outage("reset")
        await poll(one)
        emulator.faults.end_outage()
        assert one.stats()["epoch"] == 1
        assert await value_soon(one, b"key") == b"1"


async def value_soon(backend, key):
    """Return a value once the circuit breaker, which may be open, lets a request pass."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await value(backend, key)
            except StorageError:
                await asyncio.sleep(0.01)


# Listing, and reading many items


async def test_scan_finds_only_items(emulator):
    async with opened(emulator) as one, opened(emulator, prefix="p/q") as inner:
        keys = {b"key-%d" % number for number in range(50)}
        await asyncio.gather(*(put(one, key) for key in keys))
        await put(inner, b"other")
        await one.flush()
        await asyncio.gather(*(put(one, key) for key in list(keys)[:5]))
        for name in ("p/readme.txt", "p/00-a2V5", "p/"):
            emulator.store.insert("bucket", name, b"x", Attributes())
        found = {item.key: item async for item in one.scan()}
        assert found.keys() == keys
        assert sum(not item.expires for item in found.values()) == 5


async def test_scan_reads_all_pages(emulator, monkeypatch):
    monkeypatch.setattr("memlite.backends.gcs.client._PAGE", 7)
    async with opened(emulator, prefix="") as one:
        keys = {b"key-%d" % number for number in range(50)}
        await asyncio.gather(*(put(one, key) for key in keys))
        assert {item.key async for item in one.scan()} == keys
        assert emulator.operations["objects.list"] == 8


async def test_many_items_are_read_concurrently_and_returned_in_order(emulator):
    async with opened(emulator, "&concurrency=10") as one:
        keys = [b"key-%d" % number for number in range(60)]
        for key in keys[::2]:
            await put(one, key, key)
        emulator.faults.set(latency="fixed:200ms")
        started = time.monotonic()
        found = await one.get_many([*keys, keys[0]])
        # Ten at a time take seven rounds; one at a time would take 12 s.
        assert 1.3 < time.monotonic() - started < 10
        values = [item and item.value for item in found]
        assert values == [key if number % 2 == 0 else None for number, key in enumerate(keys)] + [
            keys[0]
        ]
        assert await one.get_many([]) == []


# Limits


async def test_concurrent_requests_are_limited(emulator):
    async with opened(emulator, "&concurrency=5") as one:
        emulator.faults.set(latency="fixed:10ms")
        most = 0
        reads = asyncio.gather(*(one.get(b"key-%d" % number) for number in range(40)))
        while not reads.done():
            most = max(most, one.stats()["in_flight"])
            await asyncio.sleep(0.001)
        assert most == 5


@pytest.mark.alone
@patiently
async def test_waiting_for_a_slot_counts_towards_the_deadline(emulator):
    async with opened(emulator, "&concurrency=1&timeout=1.5&deadline=1.5") as one:
        emulator.faults.set(latency="fixed:500ms")
        started = time.monotonic()
        outcomes = await asyncio.gather(
            *(one.get(b"key-%d" % number) for number in range(20)), return_exceptions=True
        )
        assert time.monotonic() - started < 3
        assert {type(outcome) for outcome in outcomes} == {type(None), StorageError}


async def test_writes_that_come_too_fast_are_slowed_down():
    """GCS accepts one write a second per object name and answers 429 to further ones."""
    store = Store(object_write_rate=5)
    async with GcsEmulator(["bucket"], store=store) as emulator, opened(emulator) as one:
        started = time.monotonic()
        for number in range(4):
            await put(one, b"key", b"%d" % number)
        assert time.monotonic() - started > 0.55
        assert await value(one, b"key") == b"3"
        stats = one.stats()
        assert stats["throttled"] > 0
        assert stats["failures"] == stats["lost_acknowledgements"] == 0


async def test_custom_time_is_the_expiry_that_the_lifecycle_rule_uses(emulator):
    objects = emulator.store.bucket("bucket").objects
    async with opened(emulator) as one:
        for expires, expected in (
            (0.0, None),
            (START, datetime.fromtimestamp(START, UTC)),
            (START - 0.5, datetime.fromtimestamp(START - 0.5, UTC)),
            (1.0, datetime.fromtimestamp(1, UTC)),
            (2.0**63, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ):
            await put(one, b"key", expires=expires)
            assert objects[f"p/{name_of(b'key')}"].attributes.custom_time == expected
            assert (await one.get(b"key")).expires == expires


# Failures


@pytest.mark.parametrize(
    "kind",
    [
        "503",
        pytest.param("reset", marks=pytest.mark.slow),
        pytest.param("hang", marks=pytest.mark.slow),
    ],
)
async def test_during_an_outage_requests_fail_quickly_and_then_recover(emulator, kind, caplog):
    async with opened(emulator, "&timeout=0.4&deadline=1") as one:
        await put(one, b"key")
        emulator.faults.begin_outage(kind)
        longest, end = 0.0, time.monotonic() + 3

        async def ask():
            nonlocal longest
            while time.monotonic() < end:
                started = time.monotonic()
                with pytest.raises(StorageError):
                    await one.get(b"key")
                longest = max(longest, time.monotonic() - started)
                await asyncio.sleep(0.01)

        await asyncio.gather(*(ask() for _ in range(10)))
        assert longest < 5
        assert one.stats()["state"] == "unavailable"
        said = [await asyncio.gather(one.get(b"key"), return_exceptions=True) for _ in range(5)]
        # Other requests may be let through as probes.
        assert any("bucket: unavailable" in str(error) for [error] in said)
        emulator.faults.end_outage()
        back = time.monotonic()
        while True:
            with contextlib.suppress(StorageError):
                assert await value(one, b"key") == b"1"
                break
            await asyncio.sleep(0.01)
        assert time.monotonic() - back < 10
        assert one.stats()["state"] == "available"
    assert "gs://bucket/p/ is unavailable" in caplog.text
    assert "gs://bucket/p/ is available again" in caplog.text


async def test_errors_contain_the_cause(emulator):
    limits = "&timeout=0.7&deadline=0.9"  # one second of failures would count as an outage
    async with opened(emulator, limits) as one, opened(emulator, limits) as two:
        assert await two.get(b"key") is None
        emulator.faults.begin_outage("503")
        with pytest.raises(
            StorageError, match=r"bucket: 503 Service Unavailable; gave up .* 0\.9 s$"
        ):
            await one.get(b"key")
        with pytest.raises(StorageError, match="may or may not have been made"):
            await put(two, b"key")
        emulator.faults.end_outage()
    async with opened(emulator, limits) as one:
        emulator.faults.begin_outage("hang")
        with pytest.raises(StorageError, match="timed out"):
            await one.get(b"key")
        emulator.faults.end_outage()
    async with opened(emulator, limits) as one:
        await emulator.stop()
        with pytest.raises(StorageError, match="cannot connect"):
            await one.get(b"key")
        with pytest.raises(StorageError) as caught:
            await put(one, b"key")
        assert "have been made" not in str(caught.value)


async def test_a_deleted_bucket_is_an_error_and_not_a_miss(emulator):
    async with opened(emulator) as one:
        bucket = emulator.store.buckets.pop("bucket")
        for operation in (one.get(b"key"), put(one, b"key"), one.delete(b"key"), one.flush()):
            with pytest.raises(StorageError, match="404 The specified bucket does not exist"):
                await operation
        emulator.store.buckets["bucket"] = bucket
        assert await one.get(b"key") is None


# Tokens


class Tokens(Credentials):
    """Credentials whose tokens are valid for some seconds."""

    def __init__(self, seconds=3600.0):
        super().__init__()
        self.seconds = seconds
        self.refreshed = 0
        self.error = None

    def refresh(self, request):
        assert threading.current_thread() is not threading.main_thread()
        if self.error:
            raise self.error
        self.refreshed += 1
        self.token = f"token-{self.refreshed}"
        now = datetime.now(UTC).replace(tzinfo=None)
        self.expiry = now + timedelta(seconds=self.seconds)


async def test_requests_carry_a_token(monkeypatch):
    tokens = Tokens()

    async def check(options):
        return tokens

    monkeypatch.setattr(startup, "check", check)
    async with GcsEmulator(["bucket"], require_token=True) as emulator, opened(emulator) as one:
        await put(one, b"key")
        assert await value(one, b"key") == b"1"
        assert tokens.refreshed == 1
        # A rejected token is replaced, and the request repeated.
        one._client.requests._authorization.current = {}
        assert await value(one, b"key") == b"1"
        assert tokens.refreshed == 2


async def test_the_clock_decides_when_a_token_is_renewed(monkeypatch):
    tokens = Tokens()

    async def check(options):
        return tokens

    monkeypatch.setattr(startup, "check", check)
    async with GcsEmulator(["bucket"], require_token=True) as emulator, opened(emulator) as one:
        await put(one, b"key")
        assert tokens.refreshed == 1
        one._client.requests._authorization.clock = lambda: time.monotonic() + 3600.0
        assert await value(one, b"key") == b"1"
        assert tokens.refreshed == 2


async def test_a_token_is_renewed_before_it_expires(monkeypatch):
    now = 0.0
    tokens = Tokens(3600.0)
    authorization = Authorization(tokens, clock=lambda: now)
    first, second = await asyncio.gather(authorization.headers(), authorization.headers())
    assert first == second == {"authorization": "Bearer token-1"}
    now = 3300.0
    assert await authorization.headers() == first
    assert tokens.refreshed == 1
    now = 3400.0
    # The old token is used while the new one is fetched.
    assert await authorization.headers() == first
    await authorization.close()
    assert await authorization.headers() == {"authorization": "Bearer token-2"}


async def test_a_failure_to_fetch_a_token_is_an_error_and_is_retried(caplog):
    now = 0.0
    tokens = Tokens()
    tokens.error = RefreshError("no network")
    authorization = Authorization(tokens, clock=lambda: now)
    with pytest.raises(NoTokenError):
        await authorization.headers()
    assert "cannot get an access token for the bucket: no network" in caplog.text
    tokens.error = None
    headers = await authorization.headers()
    tokens.error = RefreshError("no network")
    now = 3450.0
    for _ in range(3):  # valid for some more minutes, and not fetched again for each request
        assert await authorization.headers() == headers
        await authorization.close()
    assert caplog.text.count("no network") == 2
    now = 3600.0
    with pytest.raises(NoTokenError):
        await authorization.headers()


async def test_a_missing_token_is_a_storage_error(monkeypatch):
    tokens = Tokens()

    async def check(options):
        return tokens

    monkeypatch.setattr(startup, "check", check)
    async with (
        GcsEmulator(["bucket"], require_token=True) as emulator,
        opened(emulator, "&timeout=1&deadline=1.5") as one,
    ):
        tokens.error = RefreshError("no network")
        one._client.requests._authorization.current = {}
        with pytest.raises(StorageError, match="cannot get an access token from Google"):
            await one.get(b"key")


# The start of a server


async def refusal(url):
    backend = make(parse_url(url), Context())
    with pytest.raises(StartError) as caught:
        await backend.open()
    text = str(caught.value)
    assert text.startswith("--backend: gs://")
    assert "\n" not in text
    return text


async def test_a_start_without_the_bucket_fails(emulator):
    text = await refusal(f"gs://nowhere/p?endpoint={emulator.url}")
    assert text == (
        "--backend: gs://nowhere/p/: bucket nowhere does not exist; create it with: gcloud "
        "storage buckets create gs://nowhere"
    )


async def test_a_start_with_an_unreachable_endpoint_fails():
    started = time.monotonic()
    text = await refusal("gs://bucket/p?endpoint=http://127.0.0.1:9")
    assert time.monotonic() - started < 15  # not the 20 seconds of an endpoint that does not answer
    assert "no answer from http://127.0.0.1:9 (Connection refused)" in text


async def test_a_start_with_an_endpoint_that_does_not_answer_fails(emulator, monkeypatch):
    monkeypatch.setattr(startup, "_REQUEST_SECONDS", 0.2)
    emulator.faults.begin_outage("hang")
    assert "check network and endpoint" in await refusal(f"gs://bucket?endpoint={emulator.url}")
    monkeypatch.setattr(startup, "_REQUEST_SECONDS", 5.0)
    monkeypatch.setattr(startup, "_CHECK_SECONDS", 0.2)
    text = await refusal(f"gs://bucket?endpoint={emulator.url}")
    assert f"no answer from {emulator.url} within 0.2 s" in text
    emulator.faults.end_outage()


async def test_a_start_without_credentials_fails(monkeypatch):
    def default(**options):
        raise DefaultCredentialsError("nothing found\nat all")

    monkeypatch.setattr(google.auth, "default", default)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    assert "gcloud auth application-default login" in await refusal("gs://bucket/p")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere")
    text = await refusal("gs://bucket/p")
    assert "GOOGLE_APPLICATION_CREDENTIALS cannot be used (nothing found)" in text


@pytest.mark.parametrize("granted", [[], ["storage.objects.get", "storage.objects.list"], None])
async def test_a_start_without_permissions_fails(emulator, monkeypatch, granted):
    def permissions(bucket, wanted, **options):
        if granted is None:
            raise Forbidden("no")
        return granted

    monkeypatch.setattr("google.cloud.storage.Bucket.test_iam_permissions", permissions)
    text = await refusal(f"gs://bucket?endpoint={emulator.url}")
    assert "storage.objects.create, storage.objects.delete" in text
    assert ("storage.objects.get" in text) == (not granted)
    assert "grant roles/storage.objectUser on the bucket" in text


async def test_bucket_policies_that_cause_costs_are_reported(emulator, caplog, monkeypatch):
    bucket = emulator.store.bucket("bucket")
    async with opened(emulator):
        assert "retains overwritten and deleted objects for 7 days, at a charge" in caplog.text
        assert "gcloud storage buckets update gs://bucket --clear-soft-delete" in caplog.text
    caplog.clear()
    emulator.store.update_bucket(
        bucket, {**bucket.properties, "softDeletePolicy": {"retentionDurationSeconds": "0"}}
    )
    async with opened(emulator):
        assert not caplog.messages

    def reload(bucket, **options):
        raise Forbidden("no")

    monkeypatch.setattr("google.cloud.storage.Bucket.reload", reload)
    async with opened(emulator):
        assert "no permission for storage.buckets.get" in caplog.text
    caplog.clear()
    versioned = SimpleNamespace(
        reload=lambda **options: None,
        versioning_enabled=True,
        soft_delete_policy=SimpleNamespace(retention_duration_seconds=0),
    )
    with caplog.at_level(logging.WARNING):
        startup._look_at_policies(versioned, make(parse_url("gs://bucket"), Context())._options)
    assert "--no-versioning" in caplog.text


async def test_a_start_with_an_invalid_epoch_object_fails(emulator):
    emulator.store.insert("bucket", "p/epoch", b"1984", Attributes())
    text = await refusal(f"gs://bucket/p?endpoint={emulator.url}")
    assert text == (
        "--backend: gs://bucket/p/: bucket: object 'epoch' under the prefix was not written by "
        "memlite"
    )


def test_googles_libraries_are_imported_only_for_buckets():
    code = (
        "import sys, memlite.cli.main\n"
        "print([n for n in sys.modules if n in ('google', 'aiohttp')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("missing", ["aiohttp", "google.cloud.storage"])
def test_missing_packages_are_reported(missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from memlite.cli.main import main; sys.exit(main(['--backend', 'gs://bucket/p']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 71
    assert done.stderr == (
        f"memlite: --backend: gs://: {missing} is not installed: pip install 'memlite-cache[gcs]'\n"
    )
