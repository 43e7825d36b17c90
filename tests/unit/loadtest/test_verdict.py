"""The verdict: sentences that summarise a run."""

import dataclasses

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest import selection
from memlite.loadtest.results import Interval, Latency, Point, Repetition, ServerUse
from memlite.loadtest.verdict import overlap, verdict
from tests.unit.loadtest.samples import KNEE, results


def point(target, clients, throughput, *, half=None, rate=0.0, seconds=1.0, errors=(), **more):
    interval = Interval(throughput, *((throughput - half, throughput + half) if half else ()))
    repetitions = [Repetition(number, 0.0, 1.0, 1000, errors=dict(errors)) for number in (1, 2)]
    arguments = {
        "repetitions": repetitions,
        "response": {"all": Latency(count=1, p50=1200, p99=3400)},
    } | more
    return Point(
        target,
        clients,
        rate,
        100,
        throughput=interval,
        seconds=Interval(seconds),
        p50=Interval(1200),
        p99=Interval(3400),
        **arguments,
    )


def sentences(*points, kind="steady", **changes):
    made = results(clients=(1,))
    made = dataclasses.replace(made, points=points, workload={"kind": kind}, **changes)
    return verdict(made)


GROWING = [point("memory", n, t, half=90) for n, t in ((10, 20_000), (40, 41_200), (80, 42_000))]


def test_throughput_and_response_times_come_first():
    slower = point("file", 40, 18_540, half=90), point("file", 80, 17_000, half=90)
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
    found = sentences(point("memory", 1, 10_000, half=9), point("memory", 2, 20_000, half=9))
    assert found[0].endswith("at 2 clients, the highest load tested, without saturating.")


def used(share):
    """Return two repetitions with this CPU utilisation of the server."""
    use = ServerUse(share, share, 1)
    return [Repetition(number, 0.0, 1.0, 1000, server=use) for number in (1, 2)]


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (point("memory", 80, 42_000), "there is only one repetition"),
        (
            point("memory", 80, 42_000, half=178_000),
            "throughput varies by ±424% between repetitions",
        ),
        (
            point("memory", 80, 42_000, half=4_300),
            "throughput varies by ±10.2% between repetitions",
        ),
        (
            point("memory", 80, 42_000, half=90, generator_limited=True),
            "the load generator is the limit",
        ),
        (
            point("memory", 80, 42_000, half=90, repetitions=used(0.39)),
            "the server was busy for at most 39% of the time",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_saturation_is_claimed_only_if_the_figures_bear_it(last, reason):
    found = sentences(*GROWING[:2], last, point("file", 40, 9_000), point("file", 80, 9_000))
    assert f"at 40 clients; cannot tell whether that is where it saturates: {reason}; " in found[0]
    assert found[0].endswith("(cannot tell whether it is saturated: there is only one repetition).")


def test_a_slow_backend_saturates_although_its_server_is_idle():
    points = [point("gcs", n, 900, half=9, repetitions=used(0.1)) for n in (10, 20)]
    assert sentences(*points)[0].endswith("at 10 clients, where it saturates.")


def test_noise_at_low_load_does_not_matter():
    found = sentences(point("memory", 1, 9_000, half=5_000), *GROWING[1:])
    assert found[0].endswith("at 40 clients, where it saturates.")


def test_a_single_load_says_nothing_about_saturation():
    assert sentences(point("memory", 1, 10_000))[0] == (
        "With this workload, memory sustains 10,000 operations per second at 1 client."
    )


def test_overlapping_confidence_intervals_are_pointed_out():
    found = sentences(point("a", 1, 1000, half=50), point("b", 1, 960, half=20))
    assert (
        "The confidence intervals of a and b overlap: these repetitions show no significant "
        "difference in throughput."
    ) in found
    found = sentences(point("a", 1, 1000, half=10), point("b", 1, 960, half=20))
    assert not any("no significant difference" in sentence for sentence in found)


def test_overlap():
    assert overlap(Interval(1, 0, 2), Interval(3, 2, 4))
    assert overlap(Interval(1, 0, 2), Interval(4, 2.5, 5)) is False
    assert overlap(Interval(1), Interval(1, 0, 2)) is None


def test_warnings():
    found = sentences(
        point("memory", 10, 1000, errors={"timeout": 5, "connection reset": 2}.items()),
        point("memory", 20, 900, generator_limited=True),
        point("file", 10, 100),
        partial=True,
    )
    assert found[-3:] == [
        (
            "The load generator, not memory, was the bottleneck at 20 clients: the server may be "
            "faster than these figures suggest."
        ),
        "memory: 14 of 4,014 operations failed (0.349%): timeout (10), connection reset (4).",
        "The run was interrupted: these results are partial.",
    ]


def test_only_the_most_common_kinds_of_errors_are_listed():
    errors = dict.fromkeys("abcd", 1)
    found = sentences(point("memory", 10, 1000, errors=errors.items()))
    assert found[-1].endswith("a (2), b (2), c (2), and others.")


def test_one_repetition():
    once = point("a", 1, 10, repetitions=[Repetition(1, 0.0, 1.0, 10)])
    assert sentences(once)[-1].startswith("Each load was measured only once")


def test_nothing_measured():
    assert sentences(partial=True) == [
        "The run was interrupted: these results are partial.",
        "Nothing was measured.",
    ]


def test_zero_throughput():
    found = sentences(point("a", 1, 0.0, response={}), point("b", 1, 0.0, response={}))
    assert found[0].startswith("With this workload, a sustains 0 operations per second")


def test_a_knee():
    found = sentences(*GROWING, knees=[KNEE])
    assert found[-1] == (
        "The search for memory's knee ended at 40 clients, with a throughput of 40,100 operations "
        "per second and a 99th percentile of 2.1 ms: a higher load does not raise throughput."
    )


def test_open_loop():
    found = sentences(
        point("a", 50, 1000, rate=1000),
        point("a", 50, 1500, rate=2000),
        point("b", 50, 400, rate=1000),
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
        point("memory", 10, 1, seconds=0.01, response=one_set),
        point("memory", 100, 1, seconds=0.05, response=one_set),
        point("file", 10, 1, seconds=0.02),
        point("file", 100, 1, seconds=0.125),
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
