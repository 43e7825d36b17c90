"""The emulator as a server: real clients, faults on the wire, and the command."""

import asyncio
import contextlib
import gc
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from memlite.cli.main import main
from memlite.core.errors import StartError
from memlite.testing.gcs_emulator import (
    Faults,
    GcsEmulator,
    Store,
    emulator_process,
    emulator_thread,
)
from tests.support.patience import patiently

MEDIA = "/upload/storage/v1/b/bkt/o?uploadType=media&name=key"
OBJECT = "/storage/v1/b/bkt/o/key"


def google_client(url: str) -> storage.Client:
    return storage.Client(
        project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": url}
    )


@pytest.fixture(scope="module")
def emulator() -> Iterator[GcsEmulator]:
    with emulator_thread(["bkt"]) as emulator:
        yield emulator


@pytest.fixture
def client(emulator: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[storage.Client]:
    # A 404 makes the client request the bucket from a thread that outlives the test.
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    client = google_client(emulator.url)
    yield client
    client.close()
    emulator.faults.clear()
    # Google's client drops connections with error replies without closing them.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


# Google's client


def test_google_client_round_trip(client: storage.Client) -> None:
    blob = client.bucket("bkt").blob("dir/round trip é")
    blob.metadata = {"a": "b"}
    blob.upload_from_string(b"hello", content_type="text/plain", if_generation_match=0)
    assert blob.generation is not None
    assert blob.metageneration == 1
    assert blob.download_as_bytes() == b"hello"
    assert blob.download_as_bytes(start=1, end=3) == b"ell"
    again = client.bucket("bkt").get_blob("dir/round trip é")
    assert again is not None
    assert (again.generation, again.metadata, again.size) == (blob.generation, {"a": "b"}, 5)
    again.metadata = {"c": "d"}
    again.patch(if_metageneration_match=1)
    assert again.metageneration == 2
    again.cache_control = "no-store"
    again.update()
    with pytest.raises(exceptions.PreconditionFailed):
        again.patch(if_metageneration_match=1)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.delete(if_generation_match=5)
    blob.delete(if_generation_match=blob.generation)
    assert not blob.exists()
    with pytest.raises(exceptions.NotFound):
        blob.download_as_bytes()


def test_google_client_uploads_in_pieces(client: storage.Client) -> None:
    content = os.urandom(600_000)
    blob = client.bucket("bkt").blob("pieces", chunk_size=256 * 1024)
    blob.upload_from_string(content)
    assert blob.download_as_bytes() == content
    with blob.open("rb") as file:
        assert file.read(1000) == content[:1000]


def test_google_client_lists(client: storage.Client) -> None:
    bucket = client.bucket("bkt")
    for name in ("list/a", "list/b/1", "list/b/2", "list/c"):
        bucket.blob(name).upload_from_string(b"")
    listing = bucket.list_blobs(prefix="list/", delimiter="/", page_size=1)
    assert [blob.name for blob in listing] == ["list/a", "list/c"]
    assert listing.prefixes == {"list/b/"}


def test_google_client_copies(client: storage.Client) -> None:
    bucket = client.bucket("bkt")
    blob = bucket.blob("copies/a")
    blob.upload_from_string(b"value")
    assert bucket.copy_blob(blob, bucket, "copies/b").download_as_bytes() == b"value"
    target = bucket.blob("copies/c")
    assert target.rewrite(blob) == (None, 5, 5)
    composed = bucket.blob("copies/d")
    composed.compose([blob, target])
    assert composed.download_as_bytes() == b"valuevalue"
    assert composed.component_count == 2


def test_google_client_batches(client: storage.Client) -> None:
    bucket = client.bucket("bkt")
    blobs = [bucket.blob(f"batch/{number}") for number in range(3)]
    for blob in blobs:
        blob.upload_from_string(b"")
    with client.batch():
        for blob in blobs:
            blob.delete()
    assert not list(bucket.list_blobs(prefix="batch/"))


def test_google_client_manages_buckets(client: storage.Client) -> None:
    bucket = client.create_bucket("another-bucket", location="europe-west1")
    assert bucket.soft_delete_policy.retention_duration_seconds == 604800
    bucket.soft_delete_policy.retention_duration_seconds = 0
    bucket.add_lifecycle_delete_rule(days_since_custom_time=1)
    bucket.iam_configuration.uniform_bucket_level_access_enabled = True
    bucket.patch()
    again = client.get_bucket("another-bucket")
    assert again.soft_delete_policy.retention_duration_seconds == 0
    assert len(list(again.lifecycle_rules)) == 1
    assert again.iam_configuration.uniform_bucket_level_access_enabled
    assert again.test_iam_permissions(["storage.objects.get"]) == ["storage.objects.get"]
    assert "another-bucket" in {found.name for found in client.list_buckets()}
    again.delete()
    assert client.lookup_bucket("another-bucket") is None


def test_google_client_finds_the_emulator_by_the_environment(
    emulator: GcsEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator.url)
    client = storage.Client(project="p", credentials=AnonymousCredentials())
    assert client.get_bucket("bkt").name == "bkt"
    client.close()


def test_google_client_retries_failed_requests(
    client: storage.Client, emulator: GcsEmulator
) -> None:
    blob = client.bucket("bkt").blob("repeated")
    blob.upload_from_string(b"value")
    emulator.faults.reseed(1)
    emulator.faults.set(error_rates={503: 0.3})
    before = emulator.faults.counts["error-503"]
    with warnings.catch_warnings():
        # The client drops the streamed response of a failed download without closing its socket.
        warnings.simplefilter("ignore", ResourceWarning)
        values = [blob.download_as_bytes() for _ in range(5)]
        gc.collect()
    assert values == [b"value"] * 5
    assert emulator.faults.counts["error-503"] > before


def test_a_lost_acknowledgement_makes_a_repeated_create_a_conflict(
    client: storage.Client, emulator: GcsEmulator
) -> None:
    emulator.faults.set(lost_ack_rate=1.0, lost_ack="503")

    def clear() -> None:
        deadline = time.monotonic() + 60
        while not emulator.faults.counts and time.monotonic() < deadline:
            time.sleep(0.01)
        emulator.faults.clear()

    emulator.faults.counts.clear()
    clearing = threading.Thread(target=clear, daemon=True)
    clearing.start()
    blob = client.bucket("bkt").blob("lost")
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"value", if_generation_match=0)
    clearing.join()
    assert blob.download_as_bytes() == b"value"


# Faults and limits on the wire


@contextlib.asynccontextmanager
async def session_of(emulator: GcsEmulator):
    timeout = aiohttp.ClientTimeout(60)
    async with aiohttp.ClientSession(emulator.url, timeout=timeout) as session:
        yield session


async def test_many_requests_at_once() -> None:
    async with GcsEmulator(["bkt"]) as emulator, session_of(emulator) as session:

        async def use(number: int) -> None:
            content = b"%d" % number * 50
            target = MEDIA.replace("name=key", f"name={number}%2F")
            async with session.post(target, data=content) as response:
                generation = (await response.json())["generation"]
            async with session.get(f"/storage/v1/b/bkt/o/{number}%2F?alt=media") as response:
                assert await response.read() == content
                assert response.headers["X-Goog-Generation"] == generation

        await asyncio.gather(*map(use, range(200)))
        assert emulator.operations == {"objects.insert": 200, "objects.get": 200}


async def test_exactly_one_of_many_creates_succeeds() -> None:
    async with GcsEmulator(["bkt"]) as emulator, session_of(emulator) as session:

        async def create() -> int:
            async with session.post(MEDIA + "&ifGenerationMatch=0", data=b"x") as response:
                return response.status

        statuses = await asyncio.gather(*(create() for _ in range(50)))
        assert sorted(statuses) == [200] + [412] * 49


async def test_bodies_of_all_sizes_and_encodings() -> None:
    async with GcsEmulator(["bkt"]) as emulator, session_of(emulator) as session:
        content = os.urandom(5_000_000)
        async with session.post(MEDIA, data=io.BytesIO(content)) as response:
            assert (await response.json())["size"] == "5000000"

        async def chunks():
            for start in range(0, len(content), 700_000):
                yield content[start : start + 700_000]

        async with session.post(MEDIA, data=chunks(), expect100=True) as response:
            assert response.status == 200
        headers = {"Content-Encoding": "gzip"}
        async with session.post(MEDIA + "2", data=b"kept as it is", headers=headers) as response:
            assert (await response.json())["size"] == "13"
        async with session.get(OBJECT + "?alt=media") as response:
            assert await response.read() == content
        async with session.head("/bkt/key") as response:
            assert response.headers["Content-Length"] == "5000000"
            assert await response.read() == b""


@patiently
async def test_a_late_write_replaces_a_write_acknowledged_meanwhile() -> None:
    faults = Faults(late_rate=1.0, late_delay="fixed:500ms")
    async with GcsEmulator(["bkt"], faults=faults) as emulator, session_of(emulator) as session:
        with pytest.raises((ConnectionResetError, aiohttp.ClientConnectionError)):
            await session.post(MEDIA, data=b"late")
        faults.clear()
        assert faults.counts["late"] == 1
        async with session.post(MEDIA, data=b"acknowledged") as response:
            assert response.status == 200
        assert await content(session) == b"acknowledged"
        async with asyncio.timeout(60):
            while await content(session) != b"late":
                pass


async def content(session: aiohttp.ClientSession) -> bytes:
    async with session.get(OBJECT + "?alt=media") as response:
        return await response.read()


async def test_late_writes_are_dropped_when_the_emulator_stops() -> None:
    faults = Faults(late_rate=1.0, late_delay="fixed:60s")
    async with GcsEmulator(["bkt"], faults=faults) as emulator, session_of(emulator) as session:
        with pytest.raises((ConnectionResetError, aiohttp.ClientConnectionError)):
            await session.post(MEDIA, data=b"late")
        assert len(emulator._late) == 1
    assert not emulator._late


@pytest.mark.parametrize("uvloop", [False, True])
@pytest.mark.parametrize("deed", ["reset", "lost ack"])
def test_a_share_of_requests_is_reset(uvloop: bool, deed: str) -> None:
    rates = {"reset_rate": 1.0} if deed == "reset" else {"lost_ack_rate": 1.0}

    async def meet(url: str) -> None:
        async with aiohttp.ClientSession(url) as session:
            with pytest.raises((ConnectionResetError, aiohttp.ClientConnectionError)):
                await session.post(MEDIA, data=b"x")
            # Requests for buckets and the control endpoint are exempt.
            async with session.get("/storage/v1/b/bkt") as response:
                assert response.status == 200
            async with session.delete("/_emulator/faults") as response:
                assert response.status == 200
            async with session.get(OBJECT + "?alt=media") as response:
                assert response.status == (404 if deed == "reset" else 200)

    async def alone() -> None:
        async with GcsEmulator(["bkt"], faults=Faults(**rates)) as emulator:
            await meet(emulator.url)

    if uvloop:
        with emulator_thread(["bkt"], faults=Faults(**rates)) as emulator:
            asyncio.run(meet(emulator.url))
    else:
        asyncio.run(alone())


def test_a_reset_closes_the_connection_with_rst() -> None:
    with emulator_thread(["bkt"], faults=Faults(reset_rate=1.0)) as emulator:
        port = int(emulator.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(f"GET {OBJECT} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            with pytest.raises(ConnectionResetError):
                connection.recv(100)


@pytest.mark.alone
@patiently
async def test_latency() -> None:
    faults = Faults(read_latency="fixed:100ms")
    async with GcsEmulator(["bkt"], faults=faults) as emulator, session_of(emulator) as session:
        begin = time.monotonic()
        await session.post(MEDIA, data=b"x")
        between = time.monotonic()
        await asyncio.gather(*(session.get(OBJECT) for _ in range(20)))
        end = time.monotonic()
        assert between - begin < 0.1 <= end - between < 1


async def test_outages() -> None:
    async with GcsEmulator(["bkt"]) as emulator, session_of(emulator) as session:
        emulator.faults.begin_outage("503")
        async with session.get("/storage/v1/b/bkt") as response:
            assert response.status == 503
        emulator.faults.begin_outage("reset")
        with pytest.raises((ConnectionResetError, aiohttp.ClientConnectionError)):
            await session.post(MEDIA, data=b"x")
        emulator.faults.begin_outage("hang")
        hanging = asyncio.ensure_future(session.post(MEDIA, data=b"x"))
        await asyncio.sleep(0.05)
        assert not hanging.done()
        emulator.faults.end_outage()
        with pytest.raises((ConnectionResetError, aiohttp.ClientConnectionError)):
            await hanging
        async with session.get(OBJECT) as response:
            assert response.status == 404


async def test_it_stops_while_requests_hang_and_keeps_objects_across_a_restart() -> None:
    emulator = GcsEmulator(["bkt"])
    async with emulator, session_of(emulator) as session:
        url = emulator.url
        await session.post(MEDIA, data=b"x")
        emulator.faults.begin_outage("hang")
        # A write, which the client does not repeat by itself.
        hanging = asyncio.ensure_future(session.post(MEDIA, data=b"y"))
        await asyncio.sleep(0.05)
    with pytest.raises((ConnectionResetError, aiohttp.ClientConnectionError)):
        await hanging
    emulator.faults.clear()
    async with emulator, session_of(emulator) as session:
        assert emulator.url == url
        async with session.get(OBJECT + "?alt=media") as response:
            assert await response.read() == b"x"


async def test_tokens_and_the_write_rate_are_enforced() -> None:
    store = Store(object_write_rate=1)
    async with (
        GcsEmulator(["bkt"], store=store, require_token=True) as emulator,
        session_of(emulator) as session,
    ):
        async with session.post(MEDIA, data=b"x") as response:
            assert response.status == 401
        async with session.post("/token") as response:
            token = (await response.json())["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        for status in (200, 429):
            async with session.post(MEDIA, data=b"x", headers=headers) as response:
                assert response.status == status


def test_a_port_in_use_is_reported_by_emulator_thread() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(StartError, match=f"failed to listen on port {port}"),
            emulator_thread(port=port),
        ):
            pass


# The command


def fetch(url: str, data: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, data, timeout=60) as response:
        return response.read()  # type: ignore[no-any-return]


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "memlite", "gcs-emulator", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return process, process.stdout.readline()


def finish(process: subprocess.Popen[str], number: int) -> int:
    process.send_signal(number)
    process.communicate(timeout=60)
    return process.returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_its_address_and_exits_on_signals(number: int) -> None:
    process, line = start("--bucket", "bkt", "--bucket", "other")
    found = re.fullmatch(r"(http://127\.0\.0\.1:\d+) .*export STORAGE_EMULATOR_HOST=(\S+)\n", line)
    assert found, line
    assert found[1] == found[2]
    assert fetch(found[1] + "/storage/v1/b?project=p").count(b'"storage#bucket"') == 2
    assert finish(process, number) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_emulator_keeps_all_acknowledged_writes(tmp_path: Path, number: int) -> None:
    arguments = ("--bucket", "bkt", "--data", str(tmp_path / "data"))
    process, line = start(*arguments)
    url = line.split()[0]
    acknowledged = 0

    killer = threading.Timer(0.3, process.send_signal, [number])
    try:
        with contextlib.suppress(OSError):
            while True:
                target = MEDIA.replace("name=key", f"name={acknowledged}")
                fetch(url + target, b"%d" % acknowledged * 100)
                acknowledged += 1
                if acknowledged == 11:
                    killer.start()
        assert acknowledged > 10
        killer.join()
        process.communicate(timeout=60)
    finally:
        process.kill()
    process, line = start(*arguments)
    url = line.split()[0]
    for name in range(acknowledged):
        assert fetch(f"{url}/storage/v1/b/bkt/o/{name}?alt=media") == b"%d" % name * 100
    assert finish(process, signal.SIGTERM) == 0


def test_emulator_process_passes_flags_for_faults() -> None:
    flags = (
        "--bucket", "bkt", "--latency", "fixed:5ms", "--write-latency", "uniform:1ms-2ms",
        "--error-rate", "503=0.1,429=0.02", "--error-rate", "500=0.5", "--reset-rate", "0.1",
        "--lost-ack-rate", "0.2", "--lost-ack", "mixed", "--late-rate", "0.3",
        "--late-delay", "fixed:2s", "--seed", "5", "--object-write-rate", "1",
        "--ordered-generations", "--outage", "hang",
    )  # fmt: skip
    with emulator_process(*flags) as url:
        assert fetch(url + "/_emulator/faults") == (
            b'{"read_latency":"fixed:5ms","write_latency":"uniform:1ms-2ms",'
            b'"error_rates":{"503":0.1,"429":0.02,"500":0.5},"reset_rate":0.1,'
            b'"lost_ack_rate":0.2,"lost_ack":"mixed",'
            b'"late_rate":0.3,"late_delay":"fixed:2s","outage":"hang"}'
        )
    with pytest.raises(OSError, match="refused"):
        fetch(url + "/_emulator/health")


def test_emulator_process_reports_a_failed_start(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="exit code 64"), emulator_process("--bucket", "X"):
        pass
    assert "Invalid bucket name: 'X'" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--bogus"], "unrecognized arguments: --bogus (memlite gcs-emulator --help"),
        (["--port", "x"], "argument --port: must be a whole number, not 'x'"),
        (["--port", "70000"], "argument --port: must be at most 65535, not 70000"),
        (["--latency", "20ms"], "argument --latency: must be fixed:20ms"),
        (["--error-rate", "503"], "argument --error-rate: must be STATUS=SHARE, not '503'"),
        (["--error-rate", "200=0.1"], "argument --error-rate: must be at least 400, not 200"),
        (["--error-rate", "503=x"], "argument --error-rate: must be a number, not 'x'"),
        (["--reset-rate", "2"], "argument --reset-rate: must be from 0 to 1, not 2"),
        (["--late-rate", "x"], "argument --late-rate: must be a number, not 'x'"),
        (["--seed", "x"], "argument --seed: must be a whole number, not 'x'"),
        (["--object-write-rate", "0"], "must be more than 0"),
        (["--lost-ack", "x"], "argument --lost-ack: invalid choice"),
        (["--bucket", "a..b"], "Invalid bucket name: 'a..b'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_options_are_refused_in_one_line(
    arguments: list[str],
    says: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("memlite.core.logs.configure", lambda *_: None)  # of this process
    assert main(["gcs-emulator", *arguments]) == 64
    output, error = capfd.readouterr()
    assert output == ""
    only_line_of_an_error(error, says)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--bogus"], 64, "unrecognized arguments: --bogus (memlite gcs-emulator --help"),
        (["--host", "no.such.host.invalid"], 71, "failed to listen on port 4443"),
        (["--host", "\udcff"], 71, "failed to listen on port 4443 of \\udcff: not a host name"),
        (["--data", "/dev/null"], 71, "gcs-emulator: --data /dev/null: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_process_that_cannot_start_says_why_in_one_line(
    arguments: list[str], code: int, says: str
) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "memlite", "gcs-emulator", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (code, ""), result.stderr
    only_line_of_an_error(result.stderr, says)


def only_line_of_an_error(error: str, says: str) -> None:
    assert error.count("\n") == 1, error
    assert error.startswith("memlite: ")
    assert says in error


def test_help_and_verbose() -> None:
    command = [sys.executable, "-m", "memlite", "gcs-emulator"]
    text = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    for flag in ("--bucket", "--data", "--lost-ack-rate", "--require-token"):
        assert flag in text
    process = subprocess.Popen(
        [*command, "--port", "0", "-v"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    fetch(process.stdout.readline().split()[0] + "/_emulator/health")
    process.terminate()
    assert "GET /_emulator/health 200" in process.communicate(timeout=60)[1]


def test_without_its_packages_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "aiohttp.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'aiohttp'\", name='aiohttp')"
    )
    result = subprocess.run(
        [sys.executable, "-m", "memlite", "gcs-emulator"],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (71, "")
    assert result.stderr == (
        "memlite: gcs-emulator: aiohttp is not installed: pip install 'memlite-cache[gcs]'\n"
    )
