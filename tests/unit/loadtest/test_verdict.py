"""The verdict: sentences that summarise a run."""

import dataclasses

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest import selection
from memlite.loadtest.results import (
    Interval,
    Latency,
    MachineUse,
    Point,
    Repetition,
    ServerUse,
)
from memlite.loadtest.statistics import interval
from memlite.loadtest.verdict import findings, generator_warnings, warnings
from tests.unit.loadtest.samples import KNEE, results


def point(target, clients, *throughputs, rate=0.0, limited=False, response=None, **fields):
    """Return a point with a repetition of 100 s for each throughput, each with these `fields`."""
    repetitions = [
        Repetition(number, 0.0, 100.0, round(throughput * 100), **fields)
        for number, throughput in enumerate(throughputs, 1)
    ]
    return summarised(target, clients, repetitions, rate, limited, response)


def burst(target, clients, *seconds, **more):
    """Return a point with a burst of new clients for each duration."""
    repetitions = [Repetition(number, 0.0, one, 100) for number, one in enumerate(seconds, 1)]
    return summarised(target, clients, repetitions, **more)


def summarised(target, clients, repetitions, rate=0.0, limited=False, response=None):
    return Point(
        target,
        clients,
        rate,
        100,
        repetitions=repetitions,
        throughput=interval([one.throughput for one in repetitions]),
        seconds=interval([one.seconds for one in repetitions]),
        p50=Interval(1200),
        p99=Interval(3400),
        response={"all": Latency(count=1, p50=1200, p99=3400)} if response is None else response,
        generator_limited=limited,
    )


def verdict(made):
    return [*findings(made), *warnings(made), *generator_warnings(made)]


def sentences(*points, kind="steady", **changes):
    made = results(clients=(1,))
    made = dataclasses.replace(made, points=points, workload={"kind": kind}, **changes)
    return verdict(made)


GROWING = [
    point("memory", clients, throughput - 10, throughput + 10)
    for clients, throughput in ((10, 20_000), (40, 41_200), (80, 42_000))
]
CANNOT_TELL = "but it is unclear which is faster: "


def test_throughput_and_response_times_come_first():
    slower = point("file", 40, 18_540, 18_550), point("file", 80, 17_000, 17_010)
    found = sentences(*GROWING, *slower)
    assert found[0] == (
        "With this workload, memory sustains 41,200 operations per second at 40 clients, where it "
        "saturates; file reaches 0.45 times that, 18,500 operations per second at 40 clients "
        "(saturated)."
    )
    assert found[1] == (
        "Median and 99th percentile of response times at 80 clients: memory 1.2 ms and 3.4 ms; "
        "file 1.2 ms and 3.4 ms."
    )
    assert len(found) == 2


@pytest.mark.parametrize(("throughput", "clients"), [(39_900, 40), (39_899, 80)])
def test_saturation_is_within_5_percent_of_the_highest(throughput, clients):
    points = [point("memory", 40, throughput), point("memory", 80, 42_000)]
    assert selection.saturation(points).clients == clients


def test_a_dip_after_the_highest_throughput_does_not_move_saturation():
    points = [point("a", n, t) for n, t in ((1, 10), (2, 100), (4, 90), (8, 99))]
    assert selection.saturation(points).clients == 2


def test_a_target_that_does_not_saturate():
    found = sentences(point("memory", 1, 10_000, 10_009), point("memory", 2, 20_000, 20_009))
    assert found[0].endswith("at 2 clients, the highest load tested, without saturating.")


BUSY = MachineUse(other=0.43, steal=0.08)
OTHERS = "other programs used up to 43% of the machine's processors"


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (point("memory", 80, 42_000), "there is only one repetition"),
        (point("memory", 80, 28_000, 56_000), "throughput varies by ±424% between repetitions"),
        (point("memory", 80, 41_662, 42_338), "throughput varies by ±10.2% between repetitions"),
        (point("memory", 80, 42_000, 42_009, limited=True), "the load generator is the bottleneck"),
        (
            point("memory", 80, 42_000, 42_009, server=ServerUse(39.0, 0.39, 1)),
            "the server was busy for at most 39% of the time",
        ),
        # Four threads, none of which is the limit.
        (
            point("memory", 80, 42_000, 42_009, server=ServerUse(99.0, 0.99, 1, 0.3)),
            "the server was busy for at most 30% of the time",
        ),
        (point("memory", 80, 42_000, 42_009, machine=BUSY), OTHERS),
        (
            point("memory", 80, 42_000, 42_009, machine=MachineUse(0.02, 0.08)),
            "the hypervisor took up to 8% of the machine's processors",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_saturation_is_claimed_only_if_the_figures_support_it(last, reason):
    found = sentences(*GROWING[:2], last, point("file", 40, 9_000), point("file", 80, 9_000))
    assert f"at 40 clients; cannot tell whether that is where it saturates: {reason}; " in found[0]
    assert found[0].endswith(f"; file 9,000 operations per second at 40 clients, {CANNOT_TELL}"
                             "there is only one repetition.")  # fmt: skip


@pytest.mark.parametrize(
    "use", [ServerUse(99.0, 0.9, 1), ServerUse(99.0, 0.9, 1, 0.9), ServerUse(99.0, 3.6, 1, 0.9)]
)
def test_a_server_with_one_busy_thread_saturates(use):
    found = sentences(*GROWING[:2], point("memory", 80, 42_000, 42_009, server=use))
    assert found[0].endswith("at 40 clients, where it saturates.")


def test_little_other_load_does_not_matter():
    quiet = MachineUse(0.1, 0.05)
    found = sentences(*GROWING[:2], point("memory", 80, 42_000, 42_009, machine=quiet))
    assert found[0].endswith("at 40 clients, where it saturates.")
    assert len(found) == 2


def test_a_slow_backend_saturates_although_its_server_is_idle():
    points = [point("gcs", n, 900, 901, server=ServerUse(10.0, 0.1, 1)) for n in (10, 20)]
    assert sentences(*points)[0].endswith("at 10 clients, where it saturates.")


def test_noise_at_low_load_does_not_matter():
    found = sentences(point("memory", 1, 8_000, 12_000), *GROWING[1:])
    assert found[0].endswith("at 40 clients, where it saturates.")


def test_a_single_load_says_nothing_about_saturation():
    assert sentences(point("memory", 1, 10_000))[0] == (
        "With this workload, memory sustains 10,000 operations per second at 1 client."
    )


# Which is faster

FAST = point("a", 1, 1000, 1001, 1002)
NO_DIFFERENCE = "the difference is within the variation between repetitions"


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (point("b", 1, 500), CANNOT_TELL + "there is only one repetition"),
        (point("b", 1, 990, 980, 1010), CANNOT_TELL + NO_DIFFERENCE),
        (point("b", 1, 500, 501, limited=True), CANNOT_TELL + "the load generator limits b"),
        (point("b", 1, 500, 501, machine=BUSY), CANNOT_TELL + OTHERS),
        (point("b", 1, 0, 0, 0), CANNOT_TELL + "some repetitions completed no operations"),
        (point("b", 1, 500, 510, 490), "b reaches 0.5 times (0.48 to 0.52) that, 500 operations"),
        (point("b", 1, 990, 991, 992), "b reaches 0.99 times (0.988 to 0.992) that"),
        (point("b", 1, 500, 500, 500), "b reaches 0.5 times that"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_faster_target_is_claimed_only_if_the_figures_support_it(other, says):
    assert says in sentences(FAST, other)[0]


def test_a_generator_that_limits_the_faster_one_bounds_the_ratio():
    fast = point("a", 1, 1000, 1001, 1002, limited=True)
    assert "b reaches at most 0.5 times that" in sentences(fast, point("b", 1, 500, 501))[0]


def test_warnings():
    found = sentences(
        point("memory", 10, 10, 10, errors={"timeout": 5, "connection reset": 2}),
        point("memory", 20, 9, 9, limited=True, machine=BUSY),
        point("file", 10, 1, 1, machine=MachineUse(0.2, 0.0)),
        partial=True,
    )
    assert found[-1] == (
        "The load generator, not memory, was the bottleneck at 20 clients: the server may be "
        "faster than these figures suggest."
    )
    assert found[-4:-1] == [
        (
            f"While memory and file were measured, {OTHERS}: on a quiet machine the figures may "
            "differ."
        ),
        "memory: 14 of 3,814 operations failed (0.367%): timeout (10), connection reset (4).",
        "The run was interrupted: these results are partial.",
    ]


def test_only_the_most_common_kinds_of_errors_are_listed():
    errors = dict.fromkeys("abcd", 1)
    found = sentences(point("memory", 10, 1000, 1000, errors=errors))
    assert found[-1].endswith("a (2), b (2), c (2), and others.")


def test_one_repetition():
    assert sentences(point("a", 1, 10))[-1].startswith("Each load was measured only once")


def test_nothing_measured():
    assert sentences(partial=True) == [
        "Nothing was measured.",
        "The run was interrupted: these results are partial.",
    ]


def test_a_run_that_ended_early_says_why():
    found = sentences(point("a", 1, 10, 10), partial=True, failure="a has exited")
    assert found[-1] == "The run ended early, so these results are partial: a has exited."


def test_zero_throughput():
    found = sentences(point("a", 1, 0, response={}), point("b", 1, 0, response={}))
    assert found[0].startswith("With this workload, a sustains 0 operations per second")


def test_a_knee():
    found = sentences(*GROWING, knees=[KNEE])
    assert found[-1] == (
        "The search for memory's knee ended at 40 clients, with a throughput of 40,100 operations "
        "per second and a 99th percentile of 2.1 ms: a higher load does not raise throughput."
    )


@pytest.mark.parametrize(
    ("knee", "last", "doubt"),
    [
        (KNEE, point("memory", 80, 42_000), "there is only one repetition"),
        (KNEE, point("memory", 80, 42_000, 42_009, machine=BUSY), OTHERS),
        (
            KNEE,
            point("memory", 80, 42_000, 42_009, limited=True),
            "the load generator is the bottleneck",
        ),
        (
            dataclasses.replace(KNEE, reason="slo"),
            point("memory", 80, 42_000, 42_009, machine=BUSY),
            OTHERS,
        ),
        (dataclasses.replace(KNEE, reason="limit"), point("memory", 80, 42_000), ""),
        (KNEE, point("file", 80, 9_000), ""),
    ],
)
def test_a_knee_is_doubted_for_the_same_reasons(knee, last, doubt):
    found = sentences(*GROWING[:2], last, knees=[knee])
    (sentence,) = (one for one in found if one.startswith("The search for memory's knee"))
    told = f"; cannot tell whether the server is the reason: {doubt}"
    assert told in sentence if doubt else "cannot tell" not in sentence


def test_open_loop():
    found = sentences(
        point("a", 50, 1000, 1000, rate=1000),
        point("a", 50, 1500, 1500, rate=2000),
        point("b", 50, 400, 400, rate=1000),
    )
    assert found == [
        (
            "At 1,000 operations per second a keeps up, with a 99th percentile of 3.4 ms from when "
            "requests were due; at 2,000 it completes 1,500, with a 99th percentile of 3.4 ms."
        ),
        (
            "b keeps up with none of the rates tested; at 1,000 it completes 400, with a 99th "
            "percentile of 3.4 ms."
        ),
    ]


def test_several_value_sizes():
    found = verdict(results(sizes=(100, 10_000), clients=(10, 50)))
    assert [text.split(", memory")[0] for text in found if text.startswith("With ")] == [
        "With this workload and values of 100 B",
        "With this workload and values of 10 kB",
    ]


def test_a_burst_of_new_clients():
    one_set = {"set": Latency(count=1, p50=800)}
    found = sentences(
        burst("memory", 10, 0.01, 0.01, response=one_set),
        burst("memory", 100, 0.05, 0.05, response=one_set),
        burst("file", 10, 0.02, 0.02),
        burst("file", 100, 0.125, 0.125),
        kind="concurrent",
    )
    assert found == [
        (
            "100 clients at once, each setting and getting a value, took 50 ms in total with "
            "memory; 125 ms with file, 2.5 times as long."
        ),
        "With 10 times the clients (10 to 100), memory took 5 times as long (10 ms to 50 ms).",
        "With 10 times the clients (10 to 100), file took 6.2 times as long (20 ms to 125 ms).",
        "Median response time of a single set at 100 clients: 800 µs with memory.",
    ]


def test_a_faster_burst_is_claimed_only_if_the_figures_support_it():
    found = sentences(burst("a", 10, 0.01), burst("b", 10, 0.02), kind="concurrent")
    assert f"20 ms with b, {CANNOT_TELL}there is only one repetition." in found[0]
    fast = burst("a", 10, 0.01, 0.01, limited=True)
    found = sentences(fast, burst("b", 10, 0.02, 0.02), kind="concurrent")
    assert found[0].endswith("20 ms with b, at least 2 times as long.")


def test_bursts_are_too_short_to_tell_how_busy_the_machine_was():
    steady = point("a", 10, 1000, 1001), point("b", 10, 500, 501, machine=BUSY)
    bursts = burst("a", 10, 0.01, 0.01), burst("b", 10, 0.02, 0.02)
    found = sentences(*steady, bursts=bursts)
    assert any(f"20 ms with b, {CANNOT_TELL}{OTHERS}." in sentence for sentence in found)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"rates": (500, 5000)}, {"kind": "concurrent"}, {"repetitions": 1, "clients": (1,)}],
)
def test_sentences_are_well_formed(arguments):
    for sentence in verdict(results(**arguments)):
        assert sentence[0].isupper() or sentence.split()[0] in ("memory", "file", "gcs", "100")
        assert sentence.endswith(".")
        assert "nan" not in sentence
        assert "  " not in sentence
