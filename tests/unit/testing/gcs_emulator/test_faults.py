"""Latencies and faults: their syntax, and that they occur at the configured rates."""

import itertools
import json
import random
import statistics
from collections import Counter

import pytest

from memlite.testing.gcs_emulator import Faults, Fixed, GcsError, Lognormal, Uniform
from memlite.testing.gcs_emulator.control import Control
from memlite.testing.gcs_emulator.generations import Generations
from memlite.testing.gcs_emulator.latency import parse_duration, parse_latency
from memlite.testing.gcs_emulator.messages import Request

DRAWS = 20_000


def decisions(faults, *, reads=False, on_objects=True, draws=DRAWS):
    return [faults.decide(on_objects=on_objects, reads=reads) for _ in range(draws)]


def share(faults, action, **options):
    return sum(decision.action == action for decision in decisions(faults, **options)) / DRAWS


# Latency


@pytest.mark.parametrize(
    ("text", "seconds"), [("20ms", 0.02), ("150us", 0.00015), ("1.5s", 1.5), ("0s", 0.0)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "latency"),
    [
        ("fixed:20ms", Fixed(0.02)),
        ("uniform:10ms-30ms", Uniform(0.01, 0.03)),
        ("uniform:500us-1s", Uniform(0.0005, 1.0)),
        ("lognormal:median=20ms,p99=80ms", Lognormal(0.02, 0.08)),
        ("none", None),
    ],
)
def test_latencies_survive_a_round_trip_through_text(text, latency):
    assert parse_latency(text) == latency
    if latency is not None:
        assert str(latency) == text


@pytest.mark.parametrize(
    "text",
    ["", "20ms", "fixed", "fixed:20", "fixed:-1ms", "uniform:10ms", "uniform:30ms-10ms",
     "lognormal:median=20ms", "lognormal:median=80ms,p99=20ms", "lognormal:median=0s,p99=1s",
     "normal:20ms", "none:5ms"],
)  # fmt: skip
def test_malformed_latencies(text):
    with pytest.raises(ValueError, match=r"must be|must not|not a duration|lower bound") as caught:
        parse_latency(text)
    assert "\n" not in str(caught.value)


def test_distributions():
    source = random.Random(7)
    assert Fixed(0.02).sample(source) == 0.02
    values = [Uniform(0.01, 0.03).sample(source) for _ in range(DRAWS)]
    assert 0.01 <= min(values) < 0.0101 < 0.0299 < max(values) <= 0.03
    values = [Lognormal(0.02, 0.08).sample(source) for _ in range(DRAWS)]
    assert statistics.median(values) == pytest.approx(0.02, rel=0.05)
    assert statistics.quantiles(values, n=100)[98] == pytest.approx(0.08, rel=0.1)


# Faults


def test_without_faults_every_request_is_served():
    faults = Faults(seed=1)
    assert {(one.action, one.delay) for one in decisions(faults)} == {("serve", 0.0)}
    assert not faults.counts


def test_fault_rates():
    faults = Faults(seed=1, error_rates={503: 0.1, 429: 0.02}, reset_rate=0.05, lost_ack_rate=0.2)
    actions = Counter((one.action, one.status) for one in decisions(faults))
    assert actions["error", 503] / DRAWS == pytest.approx(0.1, abs=0.01)
    assert actions["error", 429] / DRAWS == pytest.approx(0.02, abs=0.005)
    assert actions["reset", 503] / DRAWS == pytest.approx(0.05, abs=0.01)
    assert actions["lose-reset", 503] / DRAWS == pytest.approx(0.83 * 0.2, abs=0.01)
    assert faults.counts["error-429"] == actions["error", 429]


@pytest.mark.parametrize(
    ("kind", "by_reset", "by_503"), [("reset", 0.3, 0), ("503", 0, 0.3), ("mixed", 0.15, 0.15)]
)
def test_lost_acknowledgements(kind, by_reset, by_503):
    faults = Faults(seed=1, lost_ack_rate=0.3, lost_ack=kind)
    assert share(faults, "lose-reset") == pytest.approx(by_reset, abs=0.02)
    assert share(faults, "lose-503") == pytest.approx(by_503, abs=0.02)
    assert share(faults, "serve", reads=True) == 1


def test_late_writes():
    faults = Faults(seed=1, late_rate=0.3)
    late = [one.late for one in decisions(faults) if one.action == "late"]
    assert len(late) / DRAWS == pytest.approx(0.3, abs=0.02)
    assert set(late) == {4.0}
    assert share(faults, "serve", reads=True) == 1
    faults.set(late_delay="uniform:1s-2s")
    assert all(1 <= one.late <= 2 for one in decisions(faults) if one.action == "late")
    faults.set(late_delay=None)
    assert {one.late for one in decisions(faults)} == {0.0}


def test_only_requests_on_objects_have_faults():
    faults = Faults(seed=1, reset_rate=1.0, latency="fixed:1s")
    assert share(faults, "serve", on_objects=False) == 1


def test_the_same_seed_gives_the_same_decisions():
    plan = {"error_rates": {503: 0.3}, "lost_ack_rate": 0.3, "latency": "uniform:1ms-9ms"}
    first, second, third = (Faults(seed=seed, **plan) for seed in (5, 5, 6))
    assert (
        decisions(first, draws=100) == decisions(second, draws=100) != decisions(third, draws=100)
    )
    first.reseed(6)
    third.reseed(6)
    assert decisions(first, draws=100) == decisions(third, draws=100)


def test_latencies_of_reads_and_writes():
    faults = Faults(latency="fixed:20ms", read_latency=Fixed(0.001))
    assert faults.decide(on_objects=True, reads=True).delay == 0.001
    assert faults.decide(on_objects=True, reads=False).delay == 0.02
    faults.set(write_latency=None)
    assert faults.decide(on_objects=True, reads=False).delay == 0


@pytest.mark.parametrize(
    "plan",
    [{"reset_rate": 1.5}, {"reset_rate": -0.1}, {"late_rate": 2}, {"lost_ack_rate": "x"},
     {"error_rates": {200: 0.1}}, {"error_rates": {503: 0.6}, "reset_rate": 0.6},
     {"lost_ack": "sometimes"}, {"latency": "20ms"}],
)  # fmt: skip
def test_invalid_plans(plan):
    faults = Faults(reset_rate=0.25)
    with pytest.raises(ValueError, match=r"must be|more than 1"):
        faults.set(**plan)
    assert faults.plan.reset_rate == 0.25


@pytest.mark.parametrize("kind", ["503", "reset", "hang"])
def test_outages(kind):
    now = 0.0
    faults = Faults(clock=lambda: now)
    faults.begin_outage(kind, 5)
    action = "error" if kind == "503" else kind
    now = 4.9
    assert faults.outage == kind
    for on_objects in (True, False):
        assert faults.decide(on_objects=on_objects, reads=True).action == action
    now = 5.0
    assert faults.decide(on_objects=True, reads=True).action == "serve"
    assert faults.outage is None
    faults.begin_outage(kind)
    now = 1e9
    assert faults.outage == kind
    faults.end_outage()
    assert faults.outage is None


def test_an_unknown_kind_of_outage():
    with pytest.raises(ValueError, match="must be 503, reset or hang"):
        Faults().begin_outage("nap")


# The control endpoint


@pytest.fixture
def faults():
    return Faults(seed=1)


@pytest.fixture
def control(faults):
    return Control(faults, Counter())


def ask(control, method, path, value=None):
    body = b"" if value is None else json.dumps(value).encode()
    return json.loads(control.handle(Request(method, f"/_emulator/{path}", None, body)).body)


def test_faults_through_the_control_endpoint(control, faults):
    values = {
        "latency": "fixed:1ms", "write_latency": "uniform:1ms-2ms", "error_rates": {"503": 0.1},
        "reset_rate": 0.2, "lost_ack_rate": 0.3, "lost_ack": "mixed", "outage": "hang", "seed": 3,
        "late_rate": 0.4, "late_delay": "fixed:2s",
    }  # fmt: skip
    answer = ask(control, "PATCH", "faults", values)
    assert answer == {
        "read_latency": "fixed:1ms", "write_latency": "uniform:1ms-2ms",
        "error_rates": {"503": 0.1}, "reset_rate": 0.2, "lost_ack_rate": 0.3, "lost_ack": "mixed",
        "late_rate": 0.4, "late_delay": "fixed:2s", "outage": "hang",
    }  # fmt: skip
    assert ask(control, "GET", "faults") == answer
    answer = ask(control, "PATCH", "faults", {"outage": None, "read_latency": None})
    assert (answer["outage"], answer["read_latency"], answer["reset_rate"]) == (None, "none", 0.2)
    answer = ask(control, "PATCH", "faults", {"outage": {"kind": "503", "seconds": 60}})
    assert answer["outage"] == "503"
    assert ask(control, "DELETE", "faults")["error_rates"] == {}
    assert decisions(faults, draws=1)[0].action == "serve"


@pytest.mark.parametrize(
    "values",
    [{"unheard": 1}, {"reset_rate": 2}, {"reset_rate": "x"}, {"latency": "x"}, {"outage": "x"},
     {"outage": 5}, {"outage": {}}, {"error_rates": {"x": 1}}, {"error_rates": 5}, {"seed": []},
     {"outage": {"kind": "503", "seconds": "x"}}],
)  # fmt: skip
def test_invalid_values_for_the_control_endpoint(control, values):
    with pytest.raises(GcsError) as caught:
        ask(control, "PATCH", "faults", values)
    assert caught.value.status == 400


def test_health_statistics_and_unknown_paths(control, faults):
    faults.counts["reset"] = 3
    assert ask(control, "GET", "health") == {"status": "ok"}
    assert ask(control, "GET", "statistics") == {"operations": {}, "faults": {"reset": 3}}
    assert ask(control, "DELETE", "statistics") == {"operations": {}, "faults": {}}
    for method, path, status in (("POST", "health", 501), ("GET", "other", 404)):
        with pytest.raises(GcsError) as caught:
            ask(control, method, path)
        assert caught.value.status == status


# Generations


def test_generations_are_unique_and_not_in_order():
    now = 1_700_000_000.0
    generations = Generations(lambda: now)
    numbers = [generations.next() for _ in range(10_000)]
    assert len(set(numbers)) == 10_000
    rising = sum(after > before for before, after in itertools.pairwise(numbers))
    assert 0.3 < rising / 10_000 < 0.7
    assert all(abs(number - now * 1e6) < 2**32 for number in numbers)


def test_ordered_generations():
    generations = Generations(lambda: 1_700_000_000.0, ordered=True)
    numbers = [generations.next() for _ in range(100)]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("ordered", [True, False])
def test_generations_of_an_earlier_run_are_not_reused(ordered):
    earlier = Generations(lambda: 1_700_000_000.0)
    used = {earlier.next() for _ in range(1000)}
    later = Generations(lambda: 1_600_000_000.0, ordered=ordered)
    for number in used:
        later.avoid(number)
    assert used.isdisjoint(later.next() for _ in range(10_000))
