"""Real servers obey the interactive response time law; a run with a slow generator says so."""

import io
from dataclasses import replace

import pytest

from memlite.loadtest import prices
from memlite.loadtest.checking import check as check_point
from memlite.loadtest.files import load
from memlite.loadtest.statistics import decode, latency, new_histogram
from memlite.loadtest.summary import print_summary
from tests.integration.loadtest.test_bench_command import address, bench
from tests.support.patience import patiently
from tests.support.servers import needs_memcached
from tests.unit.loadtest.samples import results

# Above this tolerance, a measurement was too short for its longest response to test anything.
MOST = 0.1
SHAPES = {
    "plain": (),
    "pipelined": ("--pipeline", "8"),
    "verified": ("--verify", "--pipeline", "4"),
    "thinking": ("--think-time", "1ms", "--multiget", "5"),
    "pymemcache": ("--client", "pymemcache"),
}
# One worker, because several do not start simultaneously, least of all on a busy machine.
ONE_SECOND = (
    "--clients", "1,8", "--keys", "200", "--duration", "1s", "--repetitions", "1", "--workers", "1",
)  # fmt: skip


def check(folder):
    """Check the law for each measurement of a run, and return its results."""
    made = load(folder)
    for point in made.points:
        assert not point.errors
        (one,) = point.checks.repetitions
        law = one.law
        assert law.think_time > 0
        assert law.tolerance <= MOST, law
        assert law.holds, law
        assert law.predicted == pytest.approx(law.response_time, rel=law.tolerance)
        assert law.in_system == pytest.approx(law.clients, rel=law.tolerance)
        assert one.series is not None
    return made


@pytest.mark.slow
@patiently
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        *(("memlite", shape) for shape in SHAPES),
        # Which server it is makes no difference to how clients count.
        *(
            pytest.param("memcached", shape, marks=needs_memcached)
            for shape in ("plain", "pipelined")
        ),
    ],
)
def test_response_time_is_clients_over_throughput_minus_think_time(start, tmp_path, kind, shape):
    server = start(kind=kind)
    done = bench(
        "run", address(server), *ONE_SECOND, *SHAPES[shape], "-q", "--no-report", "--out", tmp_path
    )
    assert done.returncode == 0, done.stderr
    made = check(tmp_path)
    if shape == "thinking":
        assert all(one.checks.repetitions[0].law.think_time > 1000 for one in made.points)


@pytest.mark.slow
@patiently
@pytest.mark.parametrize("shape", ["plain", "pipelined", "thinking"])
def test_clients_that_know_the_nodes_obey_the_law(tmp_path, shape):
    done = bench(
        "compare", "--cluster", "2", "--paths", "direct", *ONE_SECOND, *SHAPES[shape], "-q",
        "--no-report", "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    check(tmp_path)


@pytest.mark.slow
@patiently
@pytest.mark.parametrize("kind", ["memlite", pytest.param("memcached", marks=needs_memcached)])
def test_both_sides_of_the_law_agree_within_2_percent(start, tmp_path, kind):
    server = start(kind=kind)
    done = bench(
        "run", address(server), "--clients", "4", "--duration", "2s", "--repetitions", "1", "-q",
        "--no-report", "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (point,) = check(tmp_path).points
    assert abs(point.checks.repetitions[0].law.difference) < 0.02


# Without a warm-up nothing is cut off, so the law holds within 2% even on the busiest machine.
FROM_NOTHING = (
    "--clients", "4", "--keys", "200", "--duration", "1s", "--warm-up", "0s", "--repetitions", "1",
    "--workers", "1", "--timeout", "60s",
)  # fmt: skip
OPEN = {
    "plain": (),
    "crowded": ("--clients", "1", "--pipeline", "1", "--rate", "2k"),
    "cas": ("--mix", "cas=1,gets=1"),
    "poisson": ("--arrivals", "poisson", "--multiget", "5"),
    "nodes": (),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", OPEN)
def test_littles_law_holds_in_an_open_loop(start, tmp_path, shape):
    cluster = ("compare", "--cluster", "2", "--paths", "direct")
    target = cluster if shape == "nodes" else ("run", address(start()))
    done = bench(
        *target, "--rate", "500", *FROM_NOTHING, *OPEN[shape], "-q", "--no-report", "--out",
        tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for point in load(tmp_path).points:
        (one,) = point.repetitions
        little = point.checks.repetitions[0].little
        assert one.in_system > 0
        assert (one.cut_off, little.tolerance) == (0, 0.02)
        assert little.holds, little
        assert check_again(point, 1.0).holds
        # As if response times had been measured wrongly.
        assert check_again(point, 1.5).holds is False
        assert check_again(point, 0.5).holds is False


def check_again(point, factor):
    """Return the check of a repetition with its response times multiplied by a factor."""
    (one,) = point.repetitions
    before, shifted = decode(one.response["all"]), new_histogram()
    for item in before.get_recorded_iterator():
        shifted.record_value(
            max(1, round(item.value_iterated_to * factor)), item.count_added_in_this_iter_step
        )
    times = {**one.response, "all": latency(shifted)}
    changed = replace(point, repetitions=(replace(one, response=times),))
    return check_point(changed).repetitions[0].little


@pytest.mark.slow
def test_a_generator_that_cannot_keep_up_says_so(start, tmp_path):
    server = address(start())
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        done = bench(
            "run", server, "--rate", "100k", "--clients", "4", "--workers", "1", "--keys", "100",
            "--duration", "300ms", "--repetitions", "1", "-q", "--no-report", "--out", folder,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr  # requests never sent have timed out
        (point,) = load(folder).points
        if point.generator_limited:  # else other processes held up the server
            break
    assert done.stdout.startswith("The load generator, not ")
    assert point.generator_limited
    assert point.repetitions[0].generator_idle < 0.1


def test_a_generator_bottleneck_is_reported_in_the_first_line():
    made = results(clients=(10, 20))
    points = tuple(replace(point, generator_limited=True) for point in made.points)
    for changed, first in (
        (replace(made, points=points), "The load generator, not memory, was the bottleneck"),
        (made, "target"),
    ):
        output = io.StringIO()
        print_summary(changed, prices.load(), output)
        assert output.getvalue().startswith(first)
