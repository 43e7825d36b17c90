"""``memlite bench`` as users run it: real servers, real clients, files, exit codes."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from memlite.cli.main import main
from memlite.loadtest.files import load, save
from memlite.loadtest.results import Intervals
from tests.support.bench import bench as bench_in_this
from tests.support.certificates import Authority, client_context
from tests.support.patience import patiently
from tests.support.servers import needs_memcached, running
from tests.support.stores import PROGRAM
from tests.unit.loadtest.samples import results

QUICK = ["--duration", "150ms", "--warm-up", "20ms", "--repetitions", "2", "--keys", "200"]


def bench(*arguments, timeout=100, **options):
    """Run the command as a process if it needs a folder or an environment, or else in this one."""
    if not options:
        return bench_in_this(*arguments)
    command = [sys.executable, "-m", "memlite", "bench", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)


@pytest.fixture
def bench_here(tmp_path, monkeypatch, capsys):
    """Like `bench`, but in this process, ten times as fast, for commands that start no others."""
    monkeypatch.chdir(tmp_path)
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]

    def run(*arguments):
        words = ["bench", *map(str, arguments)]
        code = main(words)
        return subprocess.CompletedProcess(words, code, *capsys.readouterr())

    yield run
    for number, handler in handlers:
        signal.signal(number, handler)


def address(server):
    return f"127.0.0.1:{server.port}"


def marked(mark):
    """Return the processes that have this mark in their environment."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.environ().get("MEMLITE_TEST_MARK") == mark:
                found.append(one)
    return found


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="there is no valkey-server or redis-server")
def test_compare_with_valkey(tmp_path):
    """Valkey is started for the measurement, and ends with it."""
    pytest.importorskip("redis", reason="needs memlite-cache[valkey]")
    out = tmp_path / "out"
    done = bench(
        "compare", "--backends", "valkey=Store", "--clients", "4", *QUICK, "--duration", "300ms",
        "--out", out, "--no-report", "--verify",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (target,) = load(out).targets
    assert (target.name, target.kind) == ("Store", "valkey")
    assert "without persistence" in target.details["store"]
    for one in load(out).points:
        assert not one.errors
        assert all(repetition.hits > 0 for repetition in one.repetitions)


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="there is no valkey-server or redis-server")
def test_compare_with_a_store_without_memlite(tmp_path):
    """Its clients speak its own protocol: in closed loop, in open loop and in bursts."""
    out = tmp_path / "out"
    common = ("--backends", "redis-direct=Direct", "--clients", "4", *QUICK, "--out", out)
    done = bench("compare", *common, "--duration", "300ms")
    assert done.returncode == 0, done.stderr
    found = load(out)
    (target,) = found.targets
    assert (target.name, target.kind) == ("Direct", "redis-direct")
    assert "v=" in target.server
    for one in (*found.points, *found.bursts):
        assert not one.errors
        assert all(repetition.hits > 0 for repetition in one.repetitions)
    assert found.points[0].response["get"].count > 0 < found.points[0].response["set"].count
    page = (out / "report.html").read_text()
    assert "Valkey or Redis has its own machine" in page
    open_loop = ("--duration", "300ms", "--rate", "500", "--no-report", "--value-size", "10,20000")
    done = bench("compare", *common[:-1], tmp_path / "rate", *open_loop)
    assert done.returncode == 0, done.stderr
    for one in load(tmp_path / "rate").points:
        assert not one.errors
        assert all(repetition.hits > 0 for repetition in one.repetitions)


def test_compare_without_a_valkey(tmp_path):
    done = bench("compare", "--backends", "valkey", "--out", tmp_path / "out",
                 env={**os.environ, "PATH": str(tmp_path)})  # fmt: skip
    assert done.returncode == 64
    assert "apt install redis-server" in done.stderr


@pytest.mark.slow
def test_compare(tmp_path):
    out = tmp_path / "out"
    done = bench(
        "compare", "--backends", "memory,file,gcs", "--clients", "1,4", *QUICK,
        "--duration", "300ms",
        "--gcs-read-latency", "fixed:1ms", "--gcs-write-latency", "fixed:2ms",
        "--out", out, "--no-report", "--verify", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = load(out)
    assert [one.name for one in results.targets] == ["memory", "file", "gcs"]
    assert all(one.server for one in results.targets)
    assert [(one.target, one.clients) for one in results.points] == [
        (name, clients) for name in ("memory", "file", "gcs") for clients in (1, 4)
    ]
    for one in results.points:
        assert [repetition.number for repetition in one.repetitions] == [1, 2]
        assert not one.errors
        for repetition in one.repetitions:
            sets = repetition.response.get("set")  # on a busy machine there may be none
            assert repetition.operations == repetition.hits + (sets.count if sets else 0)
            assert repetition.response["all"].count == repetition.operations
            assert repetition.misses == 0
            assert repetition.server is not None
            assert repetition.server.memory_bytes > 10_000_000
            assert 0.25 < repetition.seconds < 10
    by_target = {(one.target, one.clients): one for one in results.points}
    assert by_target["gcs", 1].response["get"].p50 >= 1000
    assert by_target["gcs", 1].response["set"].p50 >= 2000
    assert by_target["memory", 4].throughput.mean > by_target["gcs", 4].throughput.mean
    # Measured in addition: new clients, all at once, each with a set and a get.
    assert [(one.target, one.clients) for one in results.bursts] == list(by_target)
    for one in results.bursts:
        assert all(
            repetition.operations == 2 * one.clients and repetition.hits == one.clients
            for repetition in one.repetitions
        )
        assert set(one.response) == {"all", "connect", "get", "set"}
    with (out / "results.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2 * 2 * 6
    assert "memory" in done.stdout
    lines = [line for line in done.stdout.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 80
    assert "[24/24]" in done.stderr
    assert not list(out.glob(".*"))


@needs_memcached
def test_run_against_memcached(start, tmp_path):
    server = start(kind="memcached")
    done = bench("run", f"{address(server)}=cache", "--clients", 3, *QUICK, "--out", tmp_path,
                 "--no-report")  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = load(tmp_path)
    assert results.targets[0].name == "cache"
    assert results.targets[0].kind == "server"
    assert results.targets[0].server.startswith("1.")
    assert results.points[0].repetitions[0].server is not None  # the server runs on this machine
    assert not results.bursts


@pytest.mark.parametrize(
    "workload",
    ["concurrent"]
    + [
        pytest.param(name, marks=pytest.mark.slow)
        for name in (
            "multiget",
            "ycsb-a",
            "ycsb-b",
            "ycsb-c",
            "ycsb-d",
            "ycsb-e",
            "ycsb-f",
            "write-only",
            "read-only",
        )
    ],
)
def test_presets(memlite, tmp_path, workload):
    done = bench("run", address(memlite), "--workload", workload, "--clients", 4, *QUICK,
                 "--value-size", 60, "--verify", "--out", tmp_path, "-q",
                 "--no-report")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    (point,) = load(tmp_path).points
    assert point.throughput.mean > 0
    assert not point.errors


def test_wrong_values_are_detected(memlite, tmp_path):
    arguments = ["run", address(memlite), "--clients", 2, *QUICK, "--out", tmp_path, "-q",
                 "--no-report"]  # fmt: skip
    assert bench(*arguments, "--mix", "set=1").returncode == 0
    # These values were not stored by a run with --verify.
    path = tmp_path / "reads.toml"
    path.write_text("preload = false\n[mix]\nget = 1\n")
    done = bench(*arguments, "--workload", path, "--verify")
    assert done.returncode == 1
    assert "wrong value" in done.stdout
    assert load(tmp_path).points[0].errors["wrong value"] > 0


@pytest.mark.alone
@patiently
def test_open_loop(memlite, tmp_path):
    done = bench("run", address(memlite), "--clients", 20, *QUICK, "--rate", "1k,2k",
                 "--out", tmp_path, "-q", "--no-report")  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = load(tmp_path).points
    assert (first.rate, second.rate) == (1000, 2000)
    assert first.throughput.mean == pytest.approx(1000, rel=0.1)
    assert second.throughput.mean == pytest.approx(2000, rel=0.1)
    assert first.service["all"].count == first.response["all"].count


@pytest.mark.slow
def test_pymemcache(memlite, tmp_path):
    done = bench("run", address(memlite), "--client", "pymemcache", "--clients", 3, *QUICK,
                 "--verify", "--out", tmp_path, "-q", "--no-report")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (point,) = load(tmp_path).points
    assert set(point.response) == {"all", "get", "set"}
    assert all(one.misses == 0 for one in point.repetitions)


@pytest.mark.parametrize("client", ["text", pytest.param("pymemcache", marks=pytest.mark.slow)])
def test_a_number_of_operations(memlite, tmp_path, client):
    done = bench("run", address(memlite), "--client", client, "--clients", 3, *QUICK,
                 "--operations", 1001, "--workers", 2, "--out", tmp_path, "-q",
                 "--no-report")  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = load(tmp_path)
    assert results.workers == 2
    assert [one.operations for one in results.points[0].repetitions] == [1001, 1001]


@pytest.mark.alone
@patiently
def test_a_trace(memlite, tmp_path):
    trace = tmp_path / "trace.csv"
    lines = ["time,operation,key,size", "0,set,a,10", "0.1,get,a,", "0.3,get,b,", "0.4,delete,a,"]
    trace.write_text("\n".join(lines) + "\n")
    done = bench("run", address(memlite), "--trace", trace, "--repetitions", 1, "--clients", 2,
                 "--out", tmp_path, "-q", "--no-report")  # fmt: skip
    assert done.returncode == 0, done.stderr
    (repetition,) = load(tmp_path).points[0].repetitions
    assert (repetition.operations, repetition.hits, repetition.misses) == (4, 1, 1)
    assert repetition.seconds == pytest.approx(0.4, abs=0.1)
    trace.write_text("\n".join([*lines, "0.5,frobnicate,a,"]) + "\n")
    done = bench("run", address(memlite), "--trace", trace, "--out", tmp_path, "-q")
    assert done.returncode != 0
    assert "trace.csv:6" in done.stderr or "line 6" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_knee_is_found(memlite, tmp_path):
    done = bench("run", address(memlite), "--clients", 1, *QUICK, "--find-knee", "--most", 8,
                 "--out", tmp_path, "-q", "--no-report")  # fmt: skip
    assert done.returncode == 0, done.stderr
    (knee,) = load(tmp_path).knees
    assert knee.reason in ("throughput", "limit")
    assert 1 <= knee.clients <= 8
    done = bench("run", address(memlite), "--clients", 1, *QUICK, "--find-knee", "--slo", "1us",
                 "--out", tmp_path, "-q", "--no-report")  # fmt: skip
    (knee,) = load(tmp_path).knees
    assert (knee.reason, knee.clients) == ("start", 1)


@pytest.mark.slow
def test_each_value_size_is_stored_before_it_is_read(tmp_path):
    done = bench("compare", "--backends", "memory", "--clients", 2, "--value-size", "10,5000,200",
                 "--keys", 100, "--mix", "get=1", "--verify", *QUICK, "--out", tmp_path, "-q",
                 "--no-report")  # fmt: skip
    assert done.returncode == 0, done.stderr
    sizes = {}
    for point in load(tmp_path).points:
        one = point.repetitions[0]
        assert one.hits == one.operations
        sizes[point.value_size] = one.bytes_received / one.operations
    assert {size: round(got, -2) for size, got in sizes.items()} == {10: 0, 5000: 5000, 200: 200}


def wait_for_gets(server):
    """Wait until a thousand more gets have arrived, so that the load is under way."""
    before, deadline = int(server.stats()["cmd_get"]), time.monotonic() + 30
    while int(server.stats()["cmd_get"]) < before + 1000:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def hung():
    """Return the results of a run whose server hangs at once, until Ctrl-C."""
    made = results(kinds=("memory",), clients=(10,), repetitions=1)
    (measured,) = made.points[0].repetitions
    unknown = (None,) * 45
    intervals = Intervals(0.1, (measured.operations, *[0] * 44), unknown, unknown)
    one = replace(measured, seconds=4.5, intervals=intervals, think_time=1.0)
    return replace(made, points=(replace(made.points[0], repetitions=(one,)),), partial=True)


def test_a_run_against_a_server_that_hangs_is_saved(bench_here, tmp_path, monkeypatch):
    monkeypatch.setattr("memlite.loadtest.command.run", lambda *_: hung())
    done = bench_here("run", "127.0.0.1:1", "--out", tmp_path / "out", "-q", "--no-report")
    assert done.returncode == 130
    assert "no steady state" in done.stdout
    assert load(tmp_path / "out").points[0].checks is not None


def test_results_are_saved_before_they_are_analysed(bench_here, tmp_path, monkeypatch):
    def fails(_):
        raise ValueError("an analysis that fails")

    monkeypatch.setattr("memlite.loadtest.command.run", lambda *_: hung())
    monkeypatch.setattr("memlite.loadtest.command.with_saturation", fails)
    with pytest.raises(ValueError, match="an analysis that fails"):
        bench_here("run", "127.0.0.1:1", "--out", tmp_path / "out", "-q", "--no-report")
    assert load(tmp_path / "out") == hung()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_saves_partial_results(memlite, tmp_path, number):
    with subprocess.Popen(
        [sys.executable, "-m", "memlite", "bench", "run", address(memlite), "--clients", "2",
         "--duration", "60s", "--warm-up", "0s", "--out", tmp_path, "--no-report"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            wait_for_gets(memlite)
        finally:
            os.killpg(process.pid, number)  # as a terminal sends it on Ctrl-C
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "partial" in errors
    assert "Traceback" not in errors
    results = load(tmp_path)
    assert results.partial
    assert results.points[0].repetitions[0].operations > 0
    assert results.points[0].repetitions[0].seconds < 50


@pytest.mark.slow
def test_a_server_that_dies_is_an_error(start, tmp_path):
    server = start()
    with subprocess.Popen(
        [sys.executable, "-m", "memlite", "bench", "run", address(server), "--clients", "2",
         "--duration", "5s", "--warm-up", "0s", "--repetitions", "1", "--out", tmp_path,
         "--no-report", "-q"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        wait_for_gets(server)
        server.process.kill()
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    assert "connection refused" in output
    counted = load(tmp_path).points[0].errors
    assert counted["connection refused"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nonsense"], "HOST:PORT"),
        (["run", "127.0.0.1:99999"], "HOST:PORT"),
        (["compare", "--backends", "disk"], "memory, file, gcs"),
        (["compare", "--backends", "memory,memory"], "same name"),
        (["compare", "--backends", ""], "nothing to compare"),
        (["run", "127.0.0.1:1", "--clients", "0"], "--clients"),
        (["run", "127.0.0.1:1", "--clients", "5:1"], "--clients"),
        (["run", "127.0.0.1:1", "--workload", "ycsb-z"], "ycsb-a"),
        (["run", "127.0.0.1:1", "--duration", "soon"], "--duration"),
        (["run", "127.0.0.1:1", "--mix", "fly=1"], "fly"),
        (["run", "127.0.0.1:1", "--slo", "1ms"], "--find-knee"),
        (["run", "127.0.0.1:1", "--client", "pymemcache", "--rate", "5"], "--rate"),
        (["report", "/nope"], "/nope cannot be read: No such file"),
        (["workload", "nope"], "mixed"),
        (["fly"], "fly"),
        ([], "COMMAND"),
    ],
)
def test_invalid_options_are_reported_in_one_line(bench_here, tmp_path, arguments, said):
    done = bench_here(*arguments)
    assert done.returncode == 64, done.stderr
    only_line_of_an_error(done, said)
    assert not list(tmp_path.glob("bench-results/*"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "127.0.0.1:1", "--clients", "0"], 64, "--clients"),
        (["run", "127.0.0.1:1"], 71, "127.0.0.1:1: Connection refused"),
        (["run", "/nope.sock"], 71, "/nope.sock: No such file"),
        (["compare", "--backends", "file:///nope/x.json"], 71, "directory /nope does not exist"),
        (["compare", "--gcs-read-latency", "slow", "--backends", "gcs"], 64, "slow"),
        (["run", "127.0.0.1:1", "--out", "/proc/nope"], 71, "/proc/nope"),
    ],
)
def test_a_run_that_cannot_start_is_reported_in_one_line(tmp_path, arguments, code, said):
    done = bench(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    only_line_of_an_error(done, said)
    assert not list(tmp_path.glob("bench-results/*"))


def only_line_of_an_error(done, said):
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_bench_workload_prints_presets_to_copy(bench_here, tmp_path, memlite):
    names = [line.split()[0] for line in bench_here("workload").stdout.splitlines()]
    assert {"concurrent", "mixed", "multiget", "ycsb-a", "ycsb-f"} <= set(names)
    copied = tmp_path / "mine.toml"
    copied.write_text(bench_here("workload", "mixed").stdout.replace("set = 1", "set = 10"))
    done = bench("run", address(memlite), "--workload", copied, "--clients", 2, *QUICK,
                 "--out", tmp_path, "-q", "--no-report")  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = load(tmp_path)
    assert results.workload["name"] == "mine"
    assert results.workload["mix"] == {"get": 10, "set": 10}
    text = json.loads((tmp_path / "results.json").read_text())
    assert text["format"] == "memlite-bench"


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_no_process_is_left_behind(tmp_path, killed):
    mark = str(tmp_path)
    arguments = ["compare", "--backends", "memory,gcs", "--clients", "2", *QUICK, "--out", tmp_path]
    environment = {**os.environ, "MEMLITE_TEST_MARK": mark}
    with subprocess.Popen(
        [sys.executable, "-m", "memlite", "bench", *arguments, "-q", "--no-report"],
        env=environment, stdout=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        while len(marked(mark)) < 5:  # the command, a worker with its helper process, servers
            assert process.poll() is None
            time.sleep(0.05)
        if killed:
            process.send_signal(signal.SIGINT)
        process.wait(60)
    deadline = time.monotonic() + 60
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not marked(mark)


@pytest.mark.slow
def test_a_worker_that_is_killed(memlite, tmp_path):
    arguments = ["run", address(memlite), "--clients", "2", "--duration", "20s", "--out", tmp_path]
    with subprocess.Popen(
        [sys.executable, "-m", "memlite", "bench", *arguments, "-q", "--workers", "1"],
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        workers = []
        while not workers:
            time.sleep(0.1)
            workers = [
                one
                for one in psutil.Process(process.pid).children(recursive=True)
                if any("spawn_main" in word for word in one.cmdline())
            ]
        workers[0].kill()
        assert process.wait(60) == 71
        assert process.stderr.read() == "memlite: bench: a worker process died\n"


@pytest.mark.slow
def test_a_combined_report_has_a_folder_of_its_own(bench_here, tmp_path):
    for name in ("old", "new"):
        save(results(clients=()), tmp_path / name)
    assert bench("report", "old", cwd=tmp_path).returncode == 0  # as a process, drawing included
    before = (tmp_path / "old" / "report.html").read_bytes()
    assert bench_here("report", "old", "new").returncode == 0
    assert (tmp_path / "old" / "report.html").read_bytes() == before
    assert len(list(tmp_path.glob("bench-results/*/report.html"))) == 1


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    return authority.issue("server"), authority.issue("client")


@pytest.fixture(scope="module")
def encrypted(certificates):
    """A memlite server with TLS that requires client certificates."""
    served, known = certificates
    with running(
        "memlite", *served.flags, "-o", f"ssl_verify_mode=2,ssl_ca_cert={served.ca}",
        tls=client_context(served.ca, known),
    ) as server:  # fmt: skip
        yield server


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--verify", "--pipeline", "4"],
        ["--mix", "get=5,cas=1,incr=1", "--rate", "500"],
        ["--client", "pymemcache"],
        ["--workload", "concurrent"],
    ],
    ids=" ".join,
)
def test_tls(encrypted, certificates, tmp_path, options):
    served, known = certificates
    files = ["--tls-ca-cert", served.ca, "--tls-cert", known.cert, "--tls-key", known.key]
    before = int(encrypted.stats()["total_connections"])
    done = bench("run", address(encrypted), "--clients", 3, *QUICK, *options, "--tls", *files,
                 "--out", tmp_path, "-q", "--no-report")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = load(tmp_path)
    assert results.targets[0].details["TLS"].startswith("TLSv1.3, ")
    points = results.points + results.bursts
    assert points
    assert all(one.operations for point in points for one in point.repetitions)
    stats = encrypted.stats()
    assert int(stats["total_connections"]) >= before + 3
    assert stats["ssl_handshake_errors"] == stats["ssl_proto_errors"] == "0"


@pytest.mark.slow
def test_tls_errors_are_reported(bench_here, memlite, encrypted, certificates, tmp_path):
    served, known = certificates
    where = [address(encrypted), "--clients", 1, *QUICK, "--out", tmp_path / "out", "-q"]
    for command, arguments, says in (
        (bench, [*where, "--tls"], "certificate verify failed"),
        (bench, [address(memlite), *where[1:], "--tls"], f"{address(memlite)}: "),
        (bench_here, [*where, "--tls", "--tls-ca-cert", "/nowhere"],
         "--tls-ca-cert: /nowhere: No such file"),
        (bench_here, [*where, "--tls", "--tls-ca-cert", known.key],
         f"--tls-ca-cert: {known.key}: "),
        (bench_here, [*where, "--tls", "--tls-cert", served.cert, "--tls-key", known.key],
         f"{served.cert} and {known.key}: key values mismatch"),
        (bench_here, [*where, "--tls", "--tls-key", known.key], "--tls-key requires --tls-cert"),
        (bench_here, [*where, "--tls-skip-verify"], "--tls-skip-verify requires --tls"),
        (bench_here, ["/a/path", *where[1:], "--tls"], "--tls cannot be combined with a UNIX"),
    ):  # fmt: skip
        done = command("run", *arguments)
        assert done.returncode in (64, 71), arguments
        assert says in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.slow
def test_tls_without_verification(certificates, tmp_path):
    served, _ = certificates
    with running("memlite", *served.flags, tls=client_context(served.ca)) as server:
        done = bench("compare", "--backends", "memory", "--target", address(server) + "=tls",
                     "--tls", "--tls-skip-verify", "--clients", 2, *QUICK, "--out", tmp_path, "-q",
                     "--no-report")  # fmt: skip
    assert done.returncode == 0, done.stderr
    plain, tls = load(tmp_path).targets
    assert "TLS" not in plain.details
    assert tls.details["TLS"].startswith("TLSv1.3, ")


@pytest.fixture(scope="module")
def lite_server():
    with running("memlite", "--dialect", "lite") as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        (),  # plain operations
        ("--verify", "--value-size", "100,2000"),
        ("--pipeline", "8", "--rate", "500"),
        ("--workload", "concurrent"),
    ],
    ids=lambda words: " ".join(words) or "plain",
)
def test_the_lite_dialect(lite_server, tmp_path, arguments):
    done = bench(
        "run", f"{address(lite_server)}=it", "--dialect", "lite", "--clients", "4", *QUICK,
        "--out", tmp_path, "--no-report", *arguments,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = load(tmp_path)
    (target,) = results.targets
    assert (target.server, target.details["dialect"]) == ("memcached-lite", "lite")
    for point in (*results.points, *results.bursts):
        assert not point.errors
        assert sum(one.hits for one in point.repetitions) > 0
        assert sum(one.misses for one in point.repetitions) == 0
        assert all(one.response["set"].count for one in point.repetitions)


@pytest.mark.slow
def test_dialects_compared(lite_server, tmp_path):
    done = bench(
        "compare", "--backends", "memory", "--target", f"{address(lite_server)}=it",
        "--dialect", "lite", "--clients", "2", *QUICK, "--out", tmp_path, "--no-report",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = load(tmp_path)
    assert [one.details.get("dialect") for one in results.targets] == [None, "lite"]
    assert not any(one.errors for one in (*results.points, *results.bursts))


@pytest.mark.slow
def test_the_wrong_dialect_is_reported(lite_server, tmp_path):
    done = bench("run", address(lite_server), "--out", tmp_path / "a")
    assert done.returncode
    assert "(--dialect lite?)" in done.stderr
    with running("memlite") as server:
        done = bench("run", address(server), "--dialect", "lite", "--out", tmp_path / "b")
        assert done.returncode
        assert "does not speak the lite dialect" in done.stderr
