"""Bounds of closed networks: a textbook system, and exact solutions that lie within."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlite.lab import Station, asymptotic_bounds, balanced_job_bounds, exact_mva

RATES = st.lists(st.floats(0.2, 8), max_size=5).map(tuple)
QUEUES = st.one_of(
    st.builds(Station, st.just("s"), st.floats(0.001, 10), st.integers(0, 4)),
    st.builds(Station, st.just("s"), st.floats(0.001, 10), st.just(1), RATES),
)


def test_a_timesharing_system() -> None:
    """Jain, chapter 34: a CPU and two disks, with demands of 2, 3 and 1 s; 4 s of think time."""
    stations = [Station("CPU", 2.0), Station("disk A", 3.0), Station("disk B", 1.0)]
    for clients in (1, 2, 5, 20):
        wide = asymptotic_bounds(stations, clients, 4.0)
        assert wide.throughput[1] == pytest.approx(min(clients / 10, 1 / 3))
        assert wide.response_time[0] == pytest.approx(max(6.0, 3 * clients - 4))
        narrow = balanced_job_bounds(stations, clients, 4.0)
        least = max(3 * clients - 4, 6 + (clients - 1) * 2 * 6 / (6 + 4))
        most = 6 + (clients - 1) * 3 * 6 / (6 + 4 / clients)
        assert narrow.response_time == pytest.approx((least, most))


@given(st.lists(QUEUES, min_size=1, max_size=4), st.integers(1, 40), st.floats(0, 20))
@settings(max_examples=60)
def test_exact_solutions_lie_within(
    stations: list[Station], clients: int, think_time: float
) -> None:
    state = exact_mva(stations, clients, think_time)[-1]
    wide = asymptotic_bounds(stations, clients, think_time)
    narrow = balanced_job_bounds(stations, clients, think_time)
    for bounds in (wide, narrow):
        low, high = bounds.throughput
        assert low * (1 - 1e-9) <= state.throughput <= high * (1 + 1e-9)
        low, high = bounds.response_time
        assert low - 1e-6 <= state.response_time <= high * (1 + 1e-9) + 1e-6
    assert narrow.throughput[0] >= wide.throughput[0] * (1 - 1e-9)
    assert narrow.throughput[1] <= wide.throughput[1] * (1 + 1e-9)


def test_one_client_never_queues() -> None:
    bounds = balanced_job_bounds([Station("a", 1.0, 3), Station("b", 2.0, 0)], 1, 1.0)
    assert bounds.response_time == pytest.approx((3.0, 3.0))


@pytest.mark.parametrize("bounds", [asymptotic_bounds, balanced_job_bounds])
def test_arguments_out_of_range(bounds: object) -> None:
    with pytest.raises(ValueError, match="clients"):
        bounds([Station("s", 1.0)], 0)  # type: ignore[operator]
    with pytest.raises(ValueError, match="think_time"):
        bounds([Station("s", 1.0)], 1, -1.0)  # type: ignore[operator]
    with pytest.raises(ValueError, match="must not both be 0"):
        bounds([Station("s", 0.0)], 1)  # type: ignore[operator]
