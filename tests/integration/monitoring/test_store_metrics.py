"""Metrics of stores: durations of requests, failures, and near caches."""

import http.client
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

OPERATIONS = "memlite_backend_operation_duration_seconds_count"


def metrics(server: RunningServer) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def use(server: RunningServer) -> None:
    with server.connect() as wire:
        assert wire.ask(b"set key 0 0 5\r\nvalue\r\n") == b"STORED\r\n"
        for _ in range(3):
            wire.send(b"get key\r\n")
            assert wire.until(b"END\r\n").startswith(b"VALUE key")


def test_a_bucket() -> None:
    pytest.importorskip("google.cloud.storage", reason="needs memlite-cache[gcs]")
    from memlite.testing.gcs_emulator import emulator_thread

    with emulator_thread(["bucket"]) as emulator:
        url = f"gs://bucket/p?endpoint={emulator.url}"
        with running("memlite", "--backend", url, "--http", "0") as server:
            use(server)
            found = metrics(server)
            assert found[f'{OPERATIONS}{{operation="get",outcome="ok"}}'] >= 1
            assert found[f'{OPERATIONS}{{operation="post",outcome="ok"}}'] >= 1
            assert f'{OPERATIONS}{{operation="get",outcome="failed"}}' not in found
            assert found["memlite_backend_up"] == 1
            assert found['memlite_backend_requests_total{kind="class_a"}'] >= 1
            emulator.faults.set(error_rates={503: 0.5})

            def failed() -> bool:
                server.ask(b"get key\r\n")  # attempts fail and are repeated; it may fail, too
                return f'{OPERATIONS}{{operation="get",outcome="failed"}}' in metrics(server)

            assert wait_until(failed)
            found = metrics(server)
            assert found['memlite_backend_problems_total{problem="failed"}'] >= 1
            assert found['memlite_backend_problems_total{problem="retried"}'] >= 1


def test_valkey() -> None:
    pytest.importorskip("redis", reason="needs memlite-cache[valkey]")
    from tests.support import stores

    if stores.PROGRAM is None:
        pytest.skip("no valkey-server or redis-server")
    with stores.store() as store:
        url = f"valkey://127.0.0.1:{store.port}/p"
        with running("memlite", "--backend", url, "--http", "0") as server:
            use(server)
            found = metrics(server)
    assert found[f'{OPERATIONS}{{operation="get",outcome="ok"}}'] >= 3
    assert found[f'{OPERATIONS}{{operation="set",outcome="ok"}}'] == 1
    assert found['memlite_backend_requests_total{kind="command"}'] >= 4


def test_a_near_cache_and_write_back_in_front_of_a_file(tmp_path: Path) -> None:
    backend = ["--backend", f"file://{tmp_path}/cache.json", "--near-cache", "8m"]
    with running("memlite", *backend, "--write-back", "--http", "0") as server:
        use(server)
        # Measured through both wrappers, once the change is stored.
        fsyncs = "memlite_journal_fsync_duration_seconds_count"
        assert wait_until(lambda: metrics(server).get(fsyncs, 0) >= 1)
        reads = 'memlite_near_cache_reads_total{{result="{}"}}'

        def read_through() -> bool:
            # Until the change is stored, write-back itself answers.
            with server.connect() as wire:
                wire.send(b"get key\r\n")
                assert wire.until(b"END\r\n").startswith(b"VALUE key")
            return metrics(server)[reads.format("hit")] >= 1

        assert wait_until(read_through)
        found = metrics(server)
    assert found["memlite_near_cache_limit_bytes"] > 0
    assert found["memlite_write_back_limit_bytes"] == 2 * 1024 * 1024
