"""Single queues: textbook values, and general properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.lab import Queue, UnstableError, closed_mmm, mg1, mm1, mmm, mmmk

RATES = st.floats(0.01, 100)
SERVERS = st.integers(1, 20)


def test_jains_gateway() -> None:
    """Example 31.2: 125 packets per second, each of which takes 2 ms."""
    gateway = mm1(125, 500)
    assert gateway.utilisation == 0.25
    assert gateway.in_system == pytest.approx(1 / 3)
    assert gateway.response_time == pytest.approx(0.00267, abs=1e-5)
    # 13 buffers lose less than one packet in a million.
    losing = mmmk(125, 500, 1, 13)
    assert 1e-9 < losing.rejected < 1e-6


def test_jains_terminals() -> None:
    """Example 31.3: five terminals, 20 minutes each, ten students per hour."""
    centre = mmm(10 / 60, 1 / 20, 5)
    assert centre.utilisation == pytest.approx(2 / 3)
    assert centre.in_queue == pytest.approx(0.65, abs=0.01)
    assert centre.waiting_time == pytest.approx(3.9, abs=0.1)  # minutes
    assert centre.response_time == pytest.approx(23.9, abs=0.1)
    survives = 1 - math.exp(-1)
    one = mm1(0.5, 1)
    assert one.response_percentile(survives) == pytest.approx(2)


def test_an_eye_clinic() -> None:
    """Gross and Harris, *Fundamentals of Queueing Theory*, example 2.2: three doctors, 20 minutes.

    Six patients arrive in an hour.
    """
    clinic = mmm(6, 3, 3)
    assert clinic.in_queue == pytest.approx(8 / 9)
    assert clinic.in_system == pytest.approx(26 / 9)
    assert clinic.response_time * 60 == pytest.approx(28.9, abs=0.05)


@given(RATES, st.floats(0.01, 0.98), SERVERS)
def test_littles_law_and_the_forms_agree(
    service_rate: float, utilisation: float, servers: int
) -> None:
    arrival_rate = utilisation * servers * service_rate
    queue = mmm(arrival_rate, service_rate, servers)
    assert_laws(queue, service_rate, servers)
    # Nearly any number of requests may wait.
    large = mmmk(arrival_rate, service_rate, servers, servers + 3000)
    assert large.response_time == pytest.approx(queue.response_time, rel=1e-6)
    if servers == 1:
        general = mg1(arrival_rate, 1 / service_rate, 1)
        assert general.response_time == pytest.approx(queue.response_time)
    median, late = queue.response_percentile(0.5), queue.response_percentile(0.99)
    assert 0 < median < late
    # The mean is the integral of the percentiles.
    steps = 200
    mean = sum(queue.response_percentile((step + 0.5) / steps) for step in range(steps)) / steps
    assert mean == pytest.approx(queue.response_time, rel=0.01)


@given(st.integers(1, 200), st.floats(0, 50), RATES, SERVERS)
def test_a_closed_system_obeys_its_laws(
    clients: int, think_time: float, service_rate: float, servers: int
) -> None:
    queue = closed_mmm(clients, think_time, service_rate, servers)
    assert_laws(queue, service_rate, servers)
    # The interactive response time law.
    assert queue.response_time == pytest.approx(
        clients / queue.throughput - think_time, rel=1e-6, abs=1e-9 * think_time + 1e-12
    )
    assert queue.throughput <= servers * service_rate * (1 + 1e-9)
    assert queue.throughput <= clients / (think_time + 1 / service_rate) * (1 + 1e-9)


def assert_laws(queue: Queue, service_rate: float, servers: int) -> None:
    assert queue.in_system == pytest.approx(queue.throughput * queue.response_time)
    assert queue.in_queue == pytest.approx(queue.throughput * queue.waiting_time, abs=1e-9)
    assert queue.utilisation == pytest.approx(queue.throughput / servers / service_rate)
    assert queue.response_time == pytest.approx(queue.waiting_time + 1 / service_rate)


def test_constant_service_times_halve_the_wait() -> None:
    random, constant = mg1(8, 0.1, 1), mg1(8, 0.1, 0)
    assert constant.waiting_time == pytest.approx(random.waiting_time / 2)
    with pytest.raises(ValueError, match="only mean values"):
        random.response_percentile(0.5)


def test_erlangs_loss() -> None:
    """Erlang B: ten lines, five erlangs."""
    assert mmmk(5, 1, 10, 10).rejected == pytest.approx(0.018385, abs=1e-6)


def test_without_arrivals() -> None:
    assert mm1(0, 4).response_time == mmmk(0, 4, 1, 5).response_time == 0.25


def test_a_queue_that_grows_for_ever() -> None:
    for arrival_rate in (10, 11):
        with pytest.raises(UnstableError, match="10 can be served"):
            mmm(arrival_rate, 5, 2)
        with pytest.raises(UnstableError):
            mg1(arrival_rate, 0.1, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mm1(-1, 1), "arrival_rate"),
        (lambda: mm1(math.nan, 1), "arrival_rate"),
        (lambda: mm1(1, 0), "service_rate"),
        (lambda: mmm(1, 2, 0), "servers"),
        (lambda: mmmk(1, 2, 3, 2), "capacity"),
        (lambda: closed_mmm(0, 1, 1), "clients"),
        (lambda: closed_mmm(1, -1, 1), "think_time"),
        (lambda: closed_mmm(1, math.nan, 1), "think_time"),
        (lambda: closed_mmm(1, math.inf, 1), "think_time"),
        (lambda: mg1(1, 0.1, math.nan), "squared_cv"),
        (lambda: mg1(1, 0, 1), "service_time"),
        (lambda: mg1(1, 0.1, -1), "squared_cv"),
        (lambda: mm1(1, 2).response_percentile(1), "share"),
    ],
)
def test_arguments_out_of_range(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
