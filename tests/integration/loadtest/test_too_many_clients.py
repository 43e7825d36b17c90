"""More clients than the server serves, or than the load generator can have."""

import contextlib
import multiprocessing
import resource
import subprocess
import sys
import threading

import pytest

from memlite.loadtest.files import load
from memlite.loadtest.messages import Failed, Task
from memlite.loadtest.worker import main
from memlite.loadtest.workload import Workload
from tests.support.bench import bench as bench_in_this
from tests.support.servers import needs_memcached, running

QUICK = ["--duration", "100ms", "--warm-up", "0s", "--repetitions", "1", "--keys", "100"]


def words(server, clients, *arguments, folder):
    return [
        "run", f"127.0.0.1:{server.port}=it", "--clients", str(clients), *QUICK, "-q",
        "--no-report", "--out", folder, *arguments,
    ]  # fmt: skip


def bench(*arguments, **options):
    """Run the command in this process, which keeps its limit of open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        return bench_in_this(*words(*arguments, **options))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def refused(done):
    """Return the one line that says why a run was stopped."""
    assert done.returncode == 71, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.strip()


@pytest.fixture(
    scope="module",
    params=["memlite", pytest.param("memcached", marks=[needs_memcached, pytest.mark.slow])],
)
def default_server(request):
    with running(request.param) as server:
        yield server


@pytest.mark.parametrize(
    "clients", [1100, *(pytest.param(n, marks=pytest.mark.slow) for n in (2000, 5000, 20_000))]
)
def test_more_clients_than_a_default_server_accepts(default_server, tmp_path, clients):
    said = refused(bench(default_server, clients, folder=tmp_path / "out"))
    # Some machines permit even fewer files to the load generator.
    generator = f"bench: {clients:,} clients with --workers 1 need {clients + 64:,} open files"
    assert f"-c {clients + 100}" in said or generator in said.replace("--workers 2", "--workers 1")
    assert not (tmp_path / "out").exists()


def test_nearly_as_many_clients_as_a_default_server_accepts(default_server, tmp_path):
    done = bench(default_server, 1000, folder=tmp_path)
    if default_server.kind == "memcached" and done.returncode:  # it counts its own files, too
        assert refused(done) == (
            "memlite: bench: it accepts 1,024 connections, some of which are already "
            "in use: for 1,000 clients, start it with -c 1100"
        )
        return
    assert done.returncode == 0, done.stderr
    (point,) = load(tmp_path).points
    assert (point.clients, point.errors) == (1000, {})
    assert int(default_server.stats()["total_connections"]) >= 1000


def only_sets(folder):
    """Return a workload without a preload, which would use many clients at once."""
    path = folder / "sets.toml"
    path.write_text("preload = false\n[mix]\nset = 1\n")
    return path


@pytest.mark.slow
def test_levels_measured_before_a_refusal_are_saved(tmp_path):
    # A server with the lite dialect does not report how many connections it accepts.
    with running("memlite", "--dialect", "lite", "-c", "4") as server:
        done = bench(
            server, "1,3,20,30", "--dialect", "lite", "--workload", only_sets(tmp_path),
            folder=tmp_path,
        )  # fmt: skip
    assert done.returncode == 71
    said = done.stderr.strip()
    assert said.startswith("memlite: bench: it "), said
    assert "; the results so far were saved; " in said
    assert "\n" not in said
    results = load(tmp_path)
    assert results.partial
    assert [point.clients for point in results.points] == [1, 3]
    assert "The run ended early, so these results are partial: it " in " ".join(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--workers", "2"],
        ["--workload", "concurrent"],
        ["--client", "pymemcache"],
        ["--verify", "--rate", "100"],
    ],
    ids=" ".join,
)
def test_other_clients_take_the_connections(tmp_path, options):
    with running("memlite", "-c", "30") as server, contextlib.ExitStack() as others:
        for _ in range(20):
            others.enter_context(server.connect()).ask(b"mn\r\n")
        said = refused(bench(server, 29, *options, folder=tmp_path / "out"))
    assert said == (
        "memlite: bench: it accepts 30 connections, some of which are already in use: "
        "for 29 clients, start it with -c 100"
    )


def test_no_connection_is_available(tmp_path):
    with running("memlite", "-c", "2") as server, server.connect() as one, server.connect() as two:
        assert [one.ask(b"mn\r\n"), two.ask(b"mn\r\n")] == [b"MN\r\n"] * 2
        said = refused(bench(server, 1, folder=tmp_path / "out"))
    assert "it has reached its connection limit" in said


@pytest.mark.slow
@needs_memcached
def test_clients_that_wait_in_the_backlog(tmp_path):
    with running("memcached", "-c", "64", "-o", "no_maxconns_fast") as server:
        said = refused(bench(server, 60, "--timeout", "1s", folder=tmp_path / "out"))
    assert "accepts 64 connections, some of which are already in use" in said


@pytest.mark.slow
def test_a_server_that_does_not_report_its_limit(tmp_path):
    with running("memlite", "--dialect", "lite", "-c", "20") as server:
        said = refused(bench(server, 40, "--dialect", "lite", folder=tmp_path / "out"))
    assert said.endswith(
        "it does not accept that many connections: for 40 clients, start it with -c 200"
    )


@pytest.mark.slow
def test_the_search_for_the_knee_ends_at_the_limit(tmp_path):
    with running("memlite", "-c", "3") as server:
        done = bench(server, 1, "--find-knee", "--mix", "get=1", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (knee,) = load(tmp_path).knees
    assert knee.clients in (1, 2)
    assert knee.reason in ("connections", "throughput")


@pytest.mark.slow
def test_too_few_open_files_for_the_generator(memlite, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))

    arguments = words(memlite, 400, "--workers", "1", folder=tmp_path / "out")
    command = [sys.executable, "-m", "memlite", "bench", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, preexec_fn=limit)
    said = refused(done)
    if "for 400 clients" not in said:  # root may raise the limit on some machines
        assert said == (
            "memlite: bench: 400 clients with --workers 1 need 464 open files per worker, but "
            "the limit is 300: raise it with ulimit -n, or use more --workers"
        )


def test_a_message_that_fills_the_pipe_arrives():
    mine, theirs = multiprocessing.Pipe()
    worker = threading.Thread(target=main, args=(theirs,))
    name = "x" * 2_000_000
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("signal.signal", lambda *_: None)  # not in a thread
            worker.start()
            mine.send(Task(("127.0.0.1", 1), Workload(trace=name), 1, 0, 1, 0, 1))
            message = mine.recv()
    finally:
        mine.close()
        worker.join(30)
    assert isinstance(message, Failed)
    assert name in message.reason
