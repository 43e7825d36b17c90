"""The benchmark scripts run, and print the expected output; their results are not tested."""

import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.patience import patiently
from tests.support.servers import needs_memcached

PAGE = ROOT / "docs" / "how-to" / "measure-a-server.md"
COMPILER = shutil.which("cc")
# Stands in for memcached in runs that do not start it.
NO_MEMCACHED = "--memcached", "true"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler for the load generator"),
    pytest.mark.skipif(sys.platform != "linux", reason="the scripts read /proc"),
    pytest.mark.skipif(
        os.cpu_count() == 1,
        reason="needs two cores: one for the server, one for the load generator",
    ),
]


@pytest.fixture(scope="module")
def loadgen(tmp_path_factory):
    target = tmp_path_factory.mktemp("loadgen") / "loadgen"
    source = ROOT / "scripts" / "benchmarks" / "loadgen.c"
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run([COMPILER, "-O2", *warnings, "-o", target, source, "-lm"], check=True)
    return target


@pytest.fixture
def scripts(monkeypatch):
    """Return a function that imports a module of the scripts."""
    monkeypatch.syspath_prepend(ROOT / "scripts" / "benchmarks")
    return importlib.import_module


def run(script, *arguments, code=0):
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "benchmarks" / script, *map(str, arguments)],
        capture_output=True, text=True, timeout=110, cwd="/",
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code == 2 else done.stdout


def rows(text, first):
    """Return the words of each line that begins with `first`."""
    return [line.split() for line in text.splitlines() if line.startswith(first)]


def generate(loadgen, server, *arguments):
    command = [loadgen, f"--port={server.port}", "--connections=4", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# The load generator


def test_key_size_and_time_to_live(loadgen, start):
    server = start()
    generate(loadgen, server, "--keys=100", "--key-size=20", "--exptime=100", "--prefill")
    with server.connect() as wire:
        assert wire.ask(b"mg key-0000000000000099 t s\r\n") in (
            b"HD t100 s100\r\n",
            b"HD t99 s100\r\n",
        )
        assert wire.stats()["curr_items"] == "100"


def test_refused_sets_are_counted(loadgen, start):
    load = ["--gets=0", "--keys=100000", "--value-size=1000", "--operations=20000"]
    server = start("-M", "-m", "2")
    found = generate(loadgen, server, *load, "--refusals")
    assert 0 < found["refused"] < found["sets"] == 20_000
    command = [loadgen, f"--port={server.port}", *load]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "unexpected reply to a set: SERVER_ERROR out of memory" in done.stderr


@pytest.mark.parametrize("size", ["11", "251", "x"])
def test_impossible_key_sizes_are_refused(loadgen, size):
    done = subprocess.run(
        [loadgen, "--port=1", f"--key-size={size}"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "--key-size: not a number from 12 to 250" in done.stderr


@pytest.mark.parametrize(
    "load",
    [
        [],
        pytest.param(["--pipeline=5"], marks=pytest.mark.slow),
        pytest.param(["--multiget=5", "--gets=1", "--sets=1"], marks=pytest.mark.slow),
    ],
)
@pytest.mark.alone
@patiently
def test_open_loop_keeps_its_rate(loadgen, start, load):
    found = generate(loadgen, start(), "--rate=4000", "--seconds=1.5", *load)
    assert found["operations"] == pytest.approx(6000, rel=0.2)
    assert found["p50_us"] <= found["p99_us"] <= found["max_us"]


@pytest.mark.alone
@patiently
def test_open_loop_counts_all_requests_while_the_server_is_stopped(loadgen, start):
    server = start()

    def stand_still():
        time.sleep(0.5)
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        server.process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=stand_still)
    thread.start()
    found = generate(loadgen, server, "--rate=2000", "--seconds=2")
    thread.join()
    # A quarter of the requests were due during the stop, and waited for half of it on average. A
    # closed loop would have seen four slow requests.
    assert found["operations"] == pytest.approx(4000, rel=0.2)
    assert found["max_us"] > 400_000
    assert found["p99_us"] > 300_000
    assert found["late_p99_us"] < 100_000  # the delay is not the generator's fault


@pytest.mark.alone
@patiently
def test_open_loop_reports_the_generators_own_delays(loadgen, start):
    command = [loadgen, f"--port={start().port}", "--rate=2000", "--seconds=2", "--connections=4"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    found = json.loads(process.communicate(timeout=30)[0])
    # A thousand batches were due during the stop, most of which four connections cannot hold.
    assert found["p99_us"] > 300_000
    assert found["late_max_us"] > 400_000
    assert found["late_p99_us"] > 300_000


@pytest.mark.alone
@patiently
def test_an_interrupted_run_prints_its_results(loadgen, start):
    command = [loadgen, f"--port={start().port}", "--rate=1000", "--seconds=3600"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    process.terminate()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(said)["operations"] > 300


# Comparisons of servers


LOADS = [
    "get-set",
    "sets",
    "1k",
    "pipeline-16",
    "multiget-10",
    "multiget-100",
    "mb-sets",
    "mb-gets",
]
QUICKLY = ["--rounds", 1, "--seconds", 0.2, "--connections", 8, "--megabytes", 2, "--starts", 2]


def of_scenarios(names, *arguments):
    chosen = [word for name in names for word in ("--scenario", name)]
    return run("bench_server.py", *QUICKLY, *chosen, *arguments)


@pytest.mark.slow
@needs_memcached
@patiently
def test_every_load_is_measured(tmp_path):
    text = of_scenarios(LOADS, "--json", tmp_path / "found.json")
    assert re.search(r"^memcached: memcached \d", text, re.MULTILINE)
    assert re.search(r"^memlite: memlite .*; Python .*; in ", text, re.MULTILINE)
    for name in LOADS:
        peer, ours = rows(text, f"{name} ")
        assert (peer[1], ours[1]) == ("memcached", "memlite")
        assert (peer[5], peer[7]) == ("1.00", "1.00")  # memcached's efficiency and throughput
        assert float(ours[2]) == pytest.approx(float(ours[3]) + float(ours[4]), abs=0.02)
        assert float(ours[5]) == pytest.approx(float(peer[2]) / float(ours[2]), rel=0.05)
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found["servers"]) == {"memcached", "memlite"}
    measured = [(row["scenario"], row["server"]) for row in found["measurements"]]
    assert sorted(measured) == sorted((name, one) for name in LOADS for one in found["servers"])
    one = found["measurements"][0]
    assert one["cpu_seconds"] == pytest.approx(one["user_seconds"] + one["system_seconds"])


@pytest.mark.slow
@needs_memcached
@pytest.mark.alone
@patiently
def test_eviction_response_times_and_starts(tmp_path):
    others = ["eviction", "half-load", "start-up"]
    text = of_scenarios(others, "--json", tmp_path / "found.json")
    for name in others[:2]:
        assert [row[1] for row in rows(text, f"{name} ")] == ["memcached", "memlite"]
    for row in rows(text, "eviction "):
        assert float(row[4]) == pytest.approx(float(row[2]) / float(row[3]), rel=0.02)
        assert float(row[5]) > 0.5  # evictions per set
    for row in rows(text, "half-load "):
        closed, half = (float(word.replace(",", "")) for word in row[2:4])
        assert closed / 4 < half < closed * 3 / 4
    assert re.search(r"^[01] of [12] rounds of 0.25 s count: ", text, re.MULTILINE)
    assert next(row[1:-3] for row in rows(text, "start-up ")) == ["memcached"]
    assert re.search(r"^start-up +memlite's Python, -c pass +[\d.]+ +[\d.]+$", text, re.MULTILINE)
    found = json.loads((tmp_path / "found.json").read_text())["measurements"]
    assert {row["scenario"] for row in found} == {
        "evicting", "not evicting", "capacity", "half-load", "start-up",
    }  # fmt: skip


@needs_memcached
def test_threads_and_workers_are_measured(tmp_path):
    chosen = ["--threads", "2,1,3", "--load", "get", "--load", "miss", "--load", "set-p16"]
    text = run("bench_server.py", *QUICKLY, *chosen, "--json", tmp_path / "found.json")
    for name in ("get", "miss", "set-p16"):
        measured, derived = rows(text, f"{name} ")[:6], rows(text, f"{name} ")[6:]
        assert [row[1:3] for row in measured] == [
            [server, threads] for threads in "123" for server in ("memcached", "memlite")
        ]
        assert [row[4] for row in measured[:2]] == ["1.00", "1.00"]  # relative to one thread
        assert {row[5] for row in measured[::2]} == {"1.00"}  # memcached's efficiency
        assert all(0.9 < float(row[7]) <= float(row[2]) for row in measured)  # the busiest
        assert [row[1] for row in derived] == ["memcached", "memlite"]
        capacities = [[float(cell) for cell in row[4:]] for row in derived]
        assert all(0 < row[at] <= 4 << at for row in capacities for at in range(3))
    found = json.loads((tmp_path / "found.json").read_text())["measurements"]
    assert len(found) == 3 * 6
    assert all(one["operations"] > 0 and one["seconds"] > 0 for one in found)
    assert max(len(line) for line in text.splitlines() if "; in /" not in line) <= 100


def test_the_load_with_the_longest_response_times_comes_first(scripts, monkeypatch, capsys):
    bench, latency = scripts("bench_server"), scripts("harness.latency")
    scenarios = scripts("harness.scenarios")

    def measured(setting, name):
        p99 = {"sets": 30, "1k": 90, "get-set": 60}[name]
        load = {"operations": 100, "seconds": 1, "p50_us": 10, "late_p99_us": 1}
        cpu = scripts("harness.processes").CpuSeconds(0.1, 0.1)
        return [
            scenarios.Measurement(kind, 1, server, cpu, load | {"p99_us": slow})
            for server, slow in (("memcached", 30), ("memlite", p99))
            for kind in (latency.CAPACITY, latency.HALF)
        ]

    monkeypatch.setattr(bench, "compare_latency", measured)
    found = bench.show_latency(None, ["sets", "1k", "get-set"])
    text = capsys.readouterr().out
    assert re.findall(r"^Load: (\S+) ", text, re.MULTILINE) == ["1k", "get-set", "sets"]
    assert [row[6] for row in rows(text, "half-load ")][1::2] == ["3.00×", "2.00×", "1.00×"]
    assert {one["of"] for one in found} == {"sets", "1k", "get-set"}
    assert max(len(line) for line in text.splitlines() if "; in /" not in line) <= 100


@needs_memcached
def test_the_matrix_is_printed_worst_first(tmp_path):
    chosen = ["--scenario", "matrix", "--group", "hits", "--json", tmp_path / "found.json"]
    text = run("bench_server.py", *QUICKLY, *chosen)
    found = rows(text, "matrix ")
    names = [" ".join(row[1:4]) for row in found]
    assert sorted(names) == [f"{share}% hits, get" for share in (50, 80, 95, 99)]
    efficiencies = [float(row[7]) for row in found]
    assert efficiencies == sorted(efficiencies) and efficiencies[0] > 0
    assert max(len(line) for line in text.splitlines() if "; in /" not in line) <= 100
    for one in json.loads((tmp_path / "found.json").read_text())["measurements"]:
        share = int(one["shape"].partition("%")[0]) / 100
        got = one["load"]["hits"] + one["load"]["misses"]
        assert one["load"]["hits"] / got == pytest.approx(share, abs=0.06)


def test_shapes_of_the_matrix_and_their_medians(scripts):
    matrix = scripts("harness.matrix")
    every = matrix.shapes(matrix.GROUPS, 0)
    assert len({one.name for one in every}) == len(every) == 20
    assert all(one.keys * one.value <= 100_000_000 for one in every)
    many = matrix.shapes(["connections"], 10_000_000)
    assert {one.keys for one in many} == {10_000_000}
    assert [one.connections for one in many] == [1, 8, 50, 200, 1000, 5000]
    samples = [
        {"shape": shape, "request": "get", "round": turn, "server": server,
         "microseconds": cost * turn, "rate": rate * turn}
        for turn in (1, 2, 3)
        for shape, theirs in (("dear", 2), ("cheap", 6))
        for server, cost, rate in (("memcached", theirs, 10), ("memlite", 4, 5))
    ]  # fmt: skip
    dear, cheap = matrix.entries(samples, "memcached")
    assert (dear.shape, dear.efficiency, dear.peer, dear.microseconds) == ("dear", 0.5, 4, 8)
    assert (cheap.shape, cheap.efficiency, cheap.rate_ratio) == ("cheap", 1.5, 0.5)


def test_lists_of_threads(scripts):
    parse = scripts("bench_server").parse
    assert parse(["--threads", "4,1,1"]).threads == [1, 4]
    assert parse(["--threads", "1"]).scenario == ["threads"]
    assert "threads" in parse([]).scenario
    for wrong in ("", "0", "x", "1,", "33"):
        with pytest.raises(SystemExit):
            parse(["--threads", wrong])


def test_scaling_is_derived_from_the_law(scripts):
    """Processor time that grows according to the law yields the parameters of the law."""
    scaling, workers = scripts("harness.scaling"), scripts("harness.workers")
    contention, coherency = 0.05, 0.01
    samples = [
        workers.Sample("get", turn, "memlite", n, turn * grown * 1e-6, 1.0, 1, 1.0)
        for turn in (1, 2, 3)
        for n in (1, 2, 4)
        for grown in [1 + contention * (n - 1) + coherency * n * (n - 1)]
    ]
    (fit,) = scaling.scalings(samples)
    assert fit.contention == pytest.approx(contention, abs=1e-4)
    assert fit.coherency == pytest.approx(coherency, abs=1e-4)
    assert fit.capacities[0][0] == pytest.approx(4 / (1 + 0.15 + 0.12), rel=1e-3)
    assert [row.relative for row in scaling.rows(samples)] == pytest.approx([1, 1.07, 1.27])
    assert scaling.scalings([one for one in samples if one.threads < 4]) == []


def test_skewed_keys_and_misses(loadgen, start):
    server = start()
    generate(loadgen, server, "--keys=1000", "--prefill")
    # By Zipf's law with exponent 2, six of ten requests are for the first of these keys.
    found = generate(loadgen, server, "--keys=1000", "--skew=2", "--sets=0", "--operations=20000")
    assert found["hits"] == 20_000
    first = server.stats("hotkeys")
    assert first["hotkeys:1:key"] == "key-00000000"
    assert 35 < float(first["hotkeys:1:share"]) < 85
    found = generate(loadgen, server, "--absent", "--sets=0", "--operations=1000", "--multiget=3")
    assert (found["hits"], found["misses"]) == (0, 1000)


def test_a_run_that_is_held(loadgen, start):
    server = start()
    command = [loadgen, f"--port={server.port}", "--connections=3", "--hold", "--operations=30"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        with server.connect() as wire:
            assert wire.stats()["curr_connections"] == "4"
        process.stdin.write("\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["operations"] == 30
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.slow
@needs_memcached
def test_variants_and_the_minimum(tmp_path):
    python = f"{sys.executable}:{ROOT}"
    common = ["--scenario", "get-set", "--rounds", 1, "--seconds", 0.2]
    text = run("bench_server.py", *common, "--variant", f"other={python}", "--python", python)
    assert [row[1] for row in rows(text, "get-set ")] == ["memcached", "memlite", "other"]
    assert "is below 1000" in run("bench_server.py", *common, "--minimum", 1000, code=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--variant", "other"], "must be NAME=PYTHON"),
        (["--variant", f"memlite={sys.executable}:{ROOT}"], "the name memlite is already used"),
        (["--variant", "other=no-python"], "no-python is not installed"),
        (["--python", f"{sys.executable}:/nowhere"], "no memlite in /nowhere"),
        (["--python", "true"], "true cannot run memlite"),
        (["--memcached", "no-memcached"], "no-memcached is not installed"),
    ],
)
def test_missing_servers_are_reported(arguments, message):
    said = run("bench_server.py", *NO_MEMCACHED, *arguments, code=2)
    assert len(said.splitlines()) == 1
    assert message in said


# The second load generator

MEMTIER = shutil.which("memtier_benchmark")


@needs_memcached
@pytest.mark.skipif(MEMTIER is None, reason="memtier_benchmark is not installed")
@pytest.mark.parametrize("name", ["get-set", "multiget-10"])
@patiently
def test_memtier_generates_the_load(tmp_path, name):
    common = "--scenario", name, "--rounds", 1, "--seconds", 1, "--connections", 4
    text = run("bench_server.py", *common, "--generator", "memtier", "--json", tmp_path / "found")
    assert [row[1] for row in rows(text, f"{name} ")] == ["memcached", "memlite"]
    for row in json.loads((tmp_path / "found").read_text())["measurements"]:
        load = row["load"]
        assert load["operations"] == load["hits"] + load["sets"] > 0
        assert load["misses"] == 0


def test_without_memtier(tmp_path):
    wanted = "--generator", "memtier", "--memtier", "no-memtier"
    said = run("bench_server.py", *NO_MEMCACHED, *wanted, "--scenario", "get-set", code=2)
    assert "no-memtier is not installed" in said


def test_options_and_results_of_memtier(scripts):
    memtier, scenarios = scripts("harness.memtier"), scripts("harness.scenarios").SCENARIOS
    given = memtier.options(scenarios["multiget-10"].options())
    assert {"--ratio=0:10", "--multi-key-get=10", "--key-maximum=10000"} <= {*given}
    assert "--pipeline=16" in memtier.options(scenarios["pipeline-16"].options())
    printed = {
        "Runtime": {"Total duration": 500},
        "Sets": {"Count": 7},
        "Gets": {"Count": 3, "Hits/sec": 40.0, "Misses/sec": 20.0},
    }
    assert memtier.as_load({"ALL STATS": printed}) == {
        "operations": 37, "seconds": 0.5, "hits": 20, "misses": 10, "sets": 7,
    }  # fmt: skip


# The costs of commands


def test_the_worst_cell_comes_first(scripts):
    commands = scripts("harness.commands")
    costs = {"get": ((2, 4), (3, 4), (2, 8)), "incr": ((1, 8), (1, 10), (1, 40))}
    samples = [
        commands.Sample(name, 16, turn, server, cost)
        for name, rounds in costs.items()
        for turn, pair in enumerate(rounds, 1)
        for server, cost in zip(("memcached", "memlite"), pair, strict=True)
    ]
    assert commands.cells(samples) == [
        commands.Cell("incr", 16, "memlite", 1, 10, 0.1),
        commands.Cell("get", 16, "memlite", 2, 4, 0.5),
    ]


@needs_memcached
@patiently
def test_every_command_is_measured(scripts):
    text = of_scenarios(["commands"], "--rounds", 1, "--seconds", 0.01, "--connections", 2)
    measured = [line[13:33].strip() for line in text.splitlines() if line[:9] == "commands "]
    requests = scripts("harness.requests")
    assert sorted(measured) == sorted([*requests.commands(requests.Sizes())] * 2)


@needs_memcached
@patiently
@pytest.mark.parametrize(
    "options",
    [("--key-size", 10, "--value-size", 10), ("--key-size", 250, "--value-size", 1_000_000)],
)
def test_commands_are_measured_with_other_sizes_and_items(options):
    names = "get, 80% hits", "get of 10, 50% hits", "mg q, 50% hits; mn", "binary getkq, 50%"
    chosen = [word for name in names for word in ("--command", name)]
    short = "--rounds", 1, "--seconds", 0.01, "--connections", 1, "--items", 1000
    text = of_scenarios(["commands"], *short, *chosen, *options)
    measured = [line[13:33].strip() for line in text.splitlines() if line[:9] == "commands "]
    assert sorted(measured) == sorted([*names] * 2)


def test_hits_are_spread_among_misses(scripts):
    requests = scripts("harness.requests")
    sizes = requests.Sizes(key=10, value=3)
    table = requests.commands(sizes)
    some = requests.batch(table["get, 80% hits"], sizes, 7, 0, 100)
    names = [line[4:] for line in some.data.split(b"\r\n")[:-1]]
    assert {len(name) for name in names} == {10}
    hits = [name[:1] == b"k" for name in names]
    assert (sum(hits), some.operations) == (80, 100)
    assert max(len(run) for run in bytes(hits).split(b"\0")) < 10
    assert some.size == 80 * len(b"VALUE k070000000 0 3\r\nvvv\r\nEND\r\n") + 20 * len(b"END\r\n")
    many = requests.batch(table["get of 10, 50% hits"], sizes, 7, 20, 2)
    assert many.data.count(b" ") == many.operations == 20
    quiet = requests.batch(table["mg q, 50% hits; mn"], sizes, 7, 0, 4)
    assert quiet.data.endswith(b"mn\r\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--key-size", 9), "--key-size must be from 10 to 250"),
        (("--key-size", 251), "--key-size must be from 10 to 250"),
        (("--value-size", 0), "--value-size must be positive"),
        (("--items", -1), "--items must not be negative"),
        (("--command", "nonsense"), "invalid choice"),
        (("--half-load-of", "eviction"), "invalid choice"),
    ],
)
def test_impossible_options_of_commands_are_refused(arguments, message):
    assert message in run("bench_server.py", *arguments, code=2)


# Response times at half load


def half_load_rounds(scripts, *rounds):
    """Build results with a p99 and a lateness of memcached and of memlite for each round."""
    scenarios = scripts("harness.scenarios")
    cpu = scripts("harness.processes").CpuSeconds(0.1, 0.1)
    return [
        scenarios.Measurement(
            name, turn, server, cpu,
            {"operations": operations, "seconds": 1, "p50_us": p99 / 2, "p99_us": p99,
             "late_p99_us": late},
        )
        for turn, figures in enumerate(rounds, 1)
        for server, (p99, late) in zip(("memcached", "memlite"), figures, strict=True)
        for name, operations in (("capacity", 80_000), ("half-load", 40_000))
    ]  # fmt: skip


def test_rounds_in_which_the_generator_was_late_are_left_out(scripts):
    latency = scripts("harness.latency")
    measured = half_load_rounds(
        scripts,
        ((9000, 900), (150, 30)),
        ((200, 30), (150, 30)),
        ((200, 40), (250, 50)),
        ((200, 30), (9000, 900)),
        ((200, 50), (200, 40)),
    )
    assert latency.rounds_that_count(measured) == {2, 3, 5}
    # Sending a megabyte takes the generator longer.
    assert latency.rounds_that_count(measured, latency.late_limit("mb-sets")) == {1, 2, 3, 4, 5}
    peer, ours = latency.response_times(measured)
    assert (peer.server, ours.server) == ("memcached", "memlite")
    assert (peer.p99, peer.ratio, peer.late) == (200, 1, 30 + 10)
    assert (ours.p99, ours.ratio, ours.late) == (200, 1, 40)
    assert (ours.capacity, ours.rate) == (80_000, 40_000)


def test_if_all_rounds_are_left_out_medians_cover_all(scripts):
    latency = scripts("harness.latency")
    measured = half_load_rounds(scripts, ((200, 900), (300, 30)), ((200, 30), (500, 900)))
    assert latency.rounds_that_count(measured) == set()
    assert [one.ratio for one in latency.response_times(measured)] == [1, 2]


def test_real_time_scheduling_applies_to_child_processes_only(scripts):
    before = os.sched_getscheduler(0)
    with scripts("harness.processes").real_time() as allowed:
        asked = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"]
        child = int(subprocess.check_output(asked))
    assert child == (os.SCHED_FIFO if allowed else before)
    assert os.sched_getscheduler(0) == before


# Memory


@pytest.mark.slow
@needs_memcached
def test_memory(tmp_path):
    text = run(
        "bench_memory.py", "--items", 20_000, "--connections", 200, "--megabytes", 4, "--times",
        0.5, "--json", tmp_path / "found.json",
    )  # fmt: skip
    found = json.loads((tmp_path / "found.json").read_text())["figures"]
    by_figure = {
        (row["figure"], row["server"]): row
        for row in found
        if row.get("phase", "mixed")[:5] == "mixed"
    }
    for server in ("memcached", "memlite"):
        item = by_figure["item", server]
        assert item["resident_bytes"] > 20 + 100
        assert item["counted_bytes"] > 20 + 100
        assert by_figure["connection", server]["used_kib"] < 100
        phases = [row for row in found if (row["figure"], row["server"]) == ("budget", server)]
        assert len(phases) == 9
        assert all(row["most"] >= row["end"] - 0.001 for row in phases)
        assert phases[-1]["evictions"] > 0
        assert phases[-1]["refused"] == 0
    assert len(rows(text, "memlite")) == 1 + 1 + 1 + 9 + 1  # itself, item, connection, budget


def test_the_churn_stores_the_right_sizes(scripts):
    churn = scripts("harness.churn")

    class Sink:
        def __init__(self):
            self.requests = []

        def pipelined(self, requests):
            self.requests += requests
            return {}

    budget, times = 2_000_000, 2.0
    for phase in churn.PHASES:
        sink = Sink()
        churn.churn(sink, phase, budget, times, 1, lambda: None)
        sets = [one for one in sink.requests if one.startswith(b"set ")]
        sizes = [int(one.split(b" ", 5)[4].split(b"\r\n")[0]) for one in sets]
        assert phase.smallest <= min(sizes)
        assert max(sizes) <= phase.largest
        assert sum(sizes) + 200 * len(sizes) == pytest.approx(times * budget, rel=0.1)
        assert sum(sizes) / len(sizes) == pytest.approx(phase.mean_size, rel=0.1)
        deletes = 1 - len(sets) / len(sink.requests)
        assert deletes == pytest.approx(phase.deletes, abs=0.05)
        expiring = sum(one.split(b" ", 4)[3] != b"0" for one in sets) / len(sets)
        assert expiring == pytest.approx(phase.expiring, abs=0.1)


def test_more_connections_than_file_descriptors():
    figure = "--figure", "connections", "--connections", 10**9
    said = run("bench_memory.py", *NO_MEMCACHED, *figure, code=2)
    assert "bench_memory: 1000000000 connections need 1000000100 open files" in said


# Stalls


@pytest.mark.slow
@needs_memcached
def test_stalls(tmp_path):
    text = run(
        "bench_stalls.py", "--items", 2_000, "--seconds", 0.3, "--json", tmp_path / "found.json"
    )
    found = json.loads((tmp_path / "found.json").read_text())["situations"]
    names = list(dict.fromkeys(row["situation"] for row in found))
    assert names == [
        "nothing", "flush_all", "stats-items", "stats-sizes", "crawl", "expiry", "growth",
        "eviction", "large", "displacing",
    ]  # fmt: skip
    for name in names:
        assert [row[1] for row in rows(text, f"{name} ")] == ["memcached", "memlite"]
    for row in found:
        assert row["probes"] > 0 or row["situation"] == "growth"
        assert row["p50_us"] <= row["p99_us"] <= row["max_us"]


@needs_memcached
def test_stalls_of_workers(tmp_path, scripts, monkeypatch):
    bench, started = scripts("bench_stalls"), []
    contestant = scripts("harness.contestants").Contestant
    arguments = contestant.arguments

    def note(self, *words):
        started.append(words)
        return arguments(self, *words)

    monkeypatch.setattr(contestant, "arguments", note)
    found = tmp_path / "found.json"
    words = ["-t", "2", "--situation", "nothing", "--items", "9", "--seconds", "0.3"]
    assert bench.main([*words, "--json", str(found)]) == 0
    assert [words[-2:] for words in started] == [("-t", "2")] * 2
    assert json.loads(found.read_text())["threads"] == 2


@pytest.mark.alone
@patiently
def test_a_stall_is_detected(scripts, loadgen, start):
    processes = scripts("harness.processes")
    server = start()
    core = processes.two_cores()[1]
    with processes.probing(loadgen, server.port, core, 1000.0) as printed:
        time.sleep(0.5)
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        server.process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
    assert printed["max_us"] > 200_000
    assert printed["p99_us"] > 100_000


# Commands without sockets


def test_commands(scripts):
    bench = scripts("bench_commands")
    output = run("bench_commands.py", "--rounds", 1)
    for name in bench.LOADS:
        ((figure,),) = [row[-1:] for row in rows(output, f"{name}  ")]
        assert int(figure.replace(",", "")) > 0


def test_a_failing_command_is_not_measured(scripts):
    with pytest.raises(RuntimeError, match="bad command line"):
        scripts("bench_commands").measure([], [b"set a 0 0 x\r\n"], 1, 1)


needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None or Path(sys.executable).resolve().parent == Path("/usr/bin"),
    reason="no valgrind, or a Python without symbols",
)


@needs_valgrind
def test_instructions(scripts):
    output = run("bench_instructions.py", "incr", "binary get, hit")
    for name in ("incr", "binary get, hit"):
        ((one, several, _),) = [row[-3:] for row in rows(output, f"{name}  ")]
        assert int(one.replace(",", "")) > int(several.replace(",", "")) > 100
    assert "known: get, hit" in run("bench_instructions.py", "xyz", code=2)


@needs_memcached
@needs_valgrind
def test_instructions_of_a_peer(scripts):
    memcached = shutil.which("memcached")
    output = run("bench_instructions.py", "set", "--peer", memcached)
    ((_, _, several),) = [row[-3:] for row in rows(output, "set  ")]
    assert int(several.replace(",", "")) > 100


# Proxies


@needs_memcached
@pytest.mark.skipif(shutil.which("nutcracker") is None, reason="nutcracker is not installed")
@patiently
def test_proxies(tmp_path):
    loads = ("get-miss", "multiget-10")
    chosen = [word for name in loads for word in ("--load", name)]
    short = "--rounds", 1, "--seconds", 0.5, "--json", tmp_path / "found.json"
    text = run("bench_proxy.py", *chosen, *short)
    found = json.loads((tmp_path / "found.json").read_text())["measurements"]
    assert [(row["scenario"], row["server"]) for row in found] == [
        (name, proxy) for name in loads for proxy in ("nutcracker", "memlite")
    ]
    assert all(row["load"]["misses"] == 0 for row in found if row["scenario"] != "get-miss")
    assert all(row["load"]["hits"] == 0 for row in found if row["scenario"] == "get-miss")
    for name in loads:
        assert [row[1] for row in rows(text, f"{name} ")] == ["nutcracker", "memlite"]


def _proxying_memcached() -> str:
    """Return a memcached that was built with its proxy; empty if none is available."""
    program = os.environ.get("MEMLITE_TEST_MEMCACHED_PROXY") or shutil.which("memcached") or ""
    usage = [program, "-h"] if program else ["true"]
    known = subprocess.run(usage, capture_output=True, text=True, check=False).stdout
    return program if "proxy_config" in known else ""


@pytest.mark.skipif(
    not _proxying_memcached(),
    reason="no memcached was built with its proxy; MEMLITE_TEST_MEMCACHED_PROXY can name one",
)
@patiently
def test_commands_of_proxies():
    program = _proxying_memcached()
    names = ["gets, hit", "cas"]
    chosen = [word for name in names for word in ("--command", name)]
    short = "--rounds", 1, "--seconds", 0.01
    text = run("bench_proxy.py", *chosen, "--memcached-proxy", program, *short)
    measured = [line[13:33].strip() for line in text.splitlines() if line[:9] == "commands "]
    assert sorted(measured) == sorted(names * 2)


def test_commands_of_proxies_are_compared_with_memcacheds():
    assert "--memcached-proxy" in run("bench_proxy.py", "--command", "all", code=2)


@pytest.mark.slow
def test_scaling(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMLITE_TEST_LEASE_SECONDS", "4")
    short = "--items", 300, "--rate", 50, "--rest", 1
    where = "--images", tmp_path, "--json", tmp_path / "found.json"
    text = run("bench_scaling.py", *short, *where)
    found = json.loads((tmp_path / "found.json").read_text())
    assert [step["name"] for step in found["steps"]] == ["add", "drain"]
    assert all(step["items"] > 50 for step in found["steps"])
    gets, hits, errors, _ = map(sum, zip(*found["seconds"], strict=True))
    assert gets == hits > 0
    assert not errors
    assert text.count("hit ratio 100.000%") == 3
    assert {path.name for path in tmp_path.glob("*.png")} == {"scaling.png", "scaling-dark.png"}


# The page about the scripts


def test_commands_on_the_page_are_valid(scripts):
    commands = [
        shlex.split(line, comments=True)
        for text in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        for line in text.splitlines()
    ]
    assert len(commands) >= 5
    named = set()
    for python, script, *arguments in commands:
        assert python == ".venv/bin/python"
        name = Path(script).stem
        named.add(name)
        assert (ROOT / script).is_file()
        assert scripts(name).parse(arguments)
    assert {
        "bench_server", "bench_memory", "bench_stalls", "bench_commands",
        "bench_instructions", "bench_proxy", "bench_scaling", "bench_telemetry",
    } <= named  # fmt: skip


def test_the_cost_of_metrics_and_traces() -> None:
    text = run("bench_telemetry.py", *NO_MEMCACHED, "--rounds", 1, "--seconds", 0.5)
    for name in ("off", "http", "otlp", "1/1000", "1/1", "scraped"):
        assert re.search(rf"^{name} +\d+\.\d\d", text, re.MULTILINE)
    assert re.search(r"a scrape takes \d+\.\d ms", text)


def test_the_page_lists_every_scenario_and_situation(scripts):
    page = PAGE.read_text()
    names = [*scripts("harness.scenarios").SCENARIOS, *scripts("bench_server").OTHERS]
    names += scripts("bench_stalls").SITUATIONS
    assert [name for name in names if f"`{name}`" not in page] == []


@needs_memcached
def test_the_memory_of_a_proxy_is_measured_with_more_keys() -> None:
    text = run("bench_proxy_nodes.py", "--keys", "300", "--nodes", "")
    assert re.search(r"^300 keys: \d+\.\d MiB$", text, re.MULTILINE)
