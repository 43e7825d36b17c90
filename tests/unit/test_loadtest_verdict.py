"""Sentences that answer the question a run was made for."""

import dataclasses

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite[bench]")

from memlite.loadtest import selection
from memlite.loadtest.results import Interval, Latency, Point, Repetition
from memlite.loadtest.verdict import overlap, verdict
from tests.unit.loadtest_samples import KNEE, results


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


GROWING = [point("memory", n, t) for n, t in ((10, 20_000), (40, 41_200), (80, 42_000))]


def test_the_question_is_answered_first():
    found = sentences(*GROWING, point("file", 40, 18_540), point("file", 80, 17_000))
    assert found[0] == (
        "For this workload memory serves 41,200 operations a second at 40 clients and does not "
        "grow beyond (saturates at 40 clients); file reaches 0.45 of that, 18,500 operations a "
        "second at 40 clients (saturated)."
    )
    assert found[1] == (
        "At 80 clients half of the responses came: memory's within 1.2 ms and 99% within 3.4 ms; "
        "file's within 1.2 ms and 99% within 3.4 ms."
    )
    assert len(found) == 2


@pytest.mark.parametrize(("throughput", "clients"), [(39_900, 40), (39_899, 80)])
def test_saturation_is_within_5_percent_of_the_highest(throughput, clients):
    points = [point("memory", 40, throughput), point("memory", 80, 42_000)]
    assert selection.saturation(points).clients == clients


def test_a_dip_after_the_highest_does_not_move_saturation():
    points = [point("a", n, t) for n, t in ((1, 10), (2, 100), (4, 90), (8, 99))]
    assert selection.saturation(points).clients == 2


def test_what_still_grows():
    found = sentences(point("memory", 1, 10_000), point("memory", 2, 20_000))
    assert found[0].endswith("at 2 clients, the most that were tried, and still grows.")


def test_one_load():
    assert sentences(point("memory", 1, 10_000))[0] == (
        "For this workload memory serves 10,000 operations a second at 1 client."
    )


def test_no_difference_that_repetitions_can_show():
    found = sentences(point("a", 1, 1000, half=50), point("b", 1, 960, half=20))
    assert (
        "The confidence intervals of a and b overlap: there is no difference in throughput that "
        "these repetitions can show."
    ) in found
    found = sentences(point("a", 1, 1000, half=10), point("b", 1, 960, half=20))
    assert not any("no difference" in sentence for sentence in found)


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
            "The load generator, not memory, was the limit at 20 clients: the server may be faster "
            "than these numbers say."
        ),
        "memory: 14 of 4,014 operations failed (0.349%): timeout (10), connection reset (4).",
        "The run was interrupted: these results are partial.",
    ]


def test_many_kinds_of_errors_are_cut():
    errors = dict.fromkeys("abcd", 1)
    found = sentences(point("memory", 10, 1000, errors=errors.items()))
    assert found[-1].endswith("a (2), b (2), c (2), and others.")


def test_one_repetition():
    once = point("a", 1, 10, repetitions=[Repetition(1, 0.0, 1.0, 10)])
    assert sentences(once)[-1].startswith("Each load was measured once")


def test_nothing_measured():
    assert sentences(partial=True) == [
        "The run was interrupted: these results are partial.",
        "Nothing was measured.",
    ]


def test_nothing_served():
    found = sentences(point("a", 1, 0.0, response={}), point("b", 1, 0.0, response={}))
    assert found[0].startswith("For this workload a serves 0 operations a second")


def test_a_limit_that_was_looked_for():
    found = sentences(*GROWING, knees=[KNEE])
    assert found[-1] == (
        "The search for memory's limit ended at 40 clients, with 40,100 operations a second and "
        "99% of the responses within 2.1 ms: more clients bring no more throughput."
    )


def test_open_loop():
    found = sentences(
        point("a", 50, 1000, rate=1000),
        point("a", 50, 1500, rate=2000),
        point("b", 50, 400, rate=1000),
    )
    assert found == [
        (
            "Sent 1,000 operations a second, a keeps up; 99% of the responses come within 3.4 ms "
            "of when they were due; of 2,000 it serves 1,500, and 99% come within 3.4 ms."
        ),
        (
            "b keeps up with none of the rates that were tried; of 1,000 it serves 400, and 99% "
            "come within 3.4 ms."
        ),
    ]


def test_several_sizes_of_values():
    found = verdict(results(sizes=(100, 10_000), clients=(10, 50)))
    assert [text.split(" memory")[0] for text in found if text.startswith("For ")] == [
        "For this workload with values of 100 B",
        "For this workload with values of 10 kB",
    ]


def test_clients_that_come_at_once():
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
            "100 clients at once that each set a value and get it took 50 ms in all with memory; "
            "125 ms with file, 2.5 times as long."
        ),
        "With 10 times the clients (10 to 100) memory took 5 times as long (10 ms to 50 ms).",
        "With 10 times the clients (10 to 100) file took 6.2 times as long (20 ms to 125 ms).",
        "A single set took (median) at 100 clients: 800 µs with memory.",
    ]


@pytest.mark.parametrize(
    "arguments",
    [{}, {"rates": (500, 5000)}, {"kind": "concurrent"}, {"repetitions": 1, "clients": (1,)}],
)
def test_sentences_are_sentences(arguments):
    for sentence in verdict(results(**arguments)):
        assert sentence[0].isupper() or sentence.split()[0] in ("memory", "file", "gcs", "100")
        assert sentence.endswith(".")
        assert "nan" not in sentence
        assert "  " not in sentence
