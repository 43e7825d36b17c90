"""Throttling by address: floods of attempts, and their effect on other clients."""

import os
from collections.abc import Callable

import pytest

from memlite.server.auth.shared_throttle import SharedThrottle
from memlite.server.auth.throttle import (
    ADDRESSES,
    FAILURES,
    PATIENCE,
    SECONDS_EACH,
    Throttle,
    network,
)

Make = Callable[[], Throttle | SharedThrottle]


@pytest.fixture(params=[Throttle, SharedThrottle])
def make(request: pytest.FixtureRequest) -> Make:
    """Return a factory of throttles, for one process or for several."""
    made: Make = request.param
    return made


def test_the_first_failures_cause_no_delay(make: Make) -> None:
    throttle = make()
    assert [throttle.take("a", 0) for _ in range(FAILURES)] == [0] * FAILURES
    assert throttle.take("a", 0) == SECONDS_EACH
    assert throttle.take("a", 0) == 2 * SECONDS_EACH
    assert throttle.take("b", 0) == 0


def test_successes_cause_no_delay(make: Make) -> None:
    throttle = make()
    for _ in range(10_000):
        assert throttle.take("a", 0) == 0
        throttle.put_back("a", 0)


def test_a_success_is_forgotten() -> None:
    throttle = Throttle()
    throttle.take("a", 0)
    throttle.put_back("a", 0)
    assert len(throttle) == 0


def test_a_flood_is_checked_at_a_fixed_rate_and_delays_end_with_it(make: Make) -> None:
    throttle = make()
    looked_at = sum(throttle.take("a", step / 1000) is not None for step in range(200_000))
    seconds = 200_000 / 1000
    assert looked_at == pytest.approx(FAILURES + (seconds + PATIENCE) / SECONDS_EACH, abs=2)
    # Another client at the same address, after the flood:
    wait = throttle.take("a", seconds)
    assert wait is None or wait <= PATIENCE
    wait = throttle.take("a", seconds + SECONDS_EACH)
    assert wait is not None
    assert throttle.take("a", seconds + PATIENCE + 2 * SECONDS_EACH) == pytest.approx(0)


def test_a_success_in_the_queue_returns_its_token(make: Make) -> None:
    throttle = make()
    for _ in range(FAILURES):
        throttle.take("a", 0)
    assert throttle.take("a", 0) == SECONDS_EACH
    throttle.put_back("a", SECONDS_EACH)
    assert throttle.take("a", SECONDS_EACH) == 0


def test_the_number_of_tracked_addresses_is_limited() -> None:
    throttle = Throttle()
    for number in range(3 * ADDRESSES):
        throttle.take(f"{number:x}", number / 200_000)
        assert len(throttle) <= ADDRESSES
    assert len(throttle) == ADDRESSES


def test_addresses_with_a_full_bucket_are_dropped() -> None:
    throttle = Throttle()
    for number in range(100):
        throttle.take(str(number), 0)
    for second in range(100):
        throttle.take("a", 1000 + second)
    assert len(throttle) == 1


def test_attempts_at_several_processes_are_counted_together() -> None:
    throttle = SharedThrottle()
    for _ in range(FAILURES):
        child = os.fork()
        if not child:
            throttle.take("a", 0)
            os._exit(0)
        os.waitpid(child, 0)
    assert throttle.take("a", 0) == SECONDS_EACH
    assert throttle.take("b", 0) == 0


def test_a_guessing_address_is_not_dropped_for_ones_that_guess_less() -> None:
    throttle = SharedThrottle(8)  # one group
    while throttle.take("a", 0) is not None:
        pass
    for number in range(1000):
        assert throttle.take(f"b{number}", 0) == 0
    assert throttle.take("a", 0) is None


def test_most_addresses_up_to_the_limit_are_tracked() -> None:
    throttle = SharedThrottle()
    for number in range(ADDRESSES // 2):
        for _ in range(FAILURES):
            assert throttle.take(f"{number}", 0) == 0
    delayed = sum(throttle.take(f"{number}", 0) != 0 for number in range(ADDRESSES // 2))
    assert delayed > 0.9 * ADDRESSES // 2


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:0db8:0001:0002::/64"),
        ("2001:db8:1:2::", "2001:0db8:0001:0002::/64"),
        ("fe80::1%eth0", "fe80:0000:0000:0000::/64"),
        ("", ""),
    ],
)
def test_networks(host: str, expected: str) -> None:
    assert network(host) == expected
