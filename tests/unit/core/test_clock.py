"""The clock, with time sources that the tests control."""

from memlite.core.clock import Clock


class Source:
    def __init__(self, now):
        self.now = now
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.now


def test_starts_at_the_wall_time():
    clock = Clock(Source(5.0), Source(1000.75))
    assert clock.started == 1000.75
    assert clock.now() == 1000.75
    assert clock.second == 1000


def test_follows_the_monotonic_source():
    monotonic = Source(5.0)
    clock = Clock(monotonic, Source(1000.0))
    monotonic.now += 2.5
    assert clock.now() == 1002.5


def test_a_step_of_the_wall_clock_changes_nothing():
    wall = Source(1000.0)
    clock = Clock(Source(5.0), wall)
    wall.now = 0.0
    clock.tick()
    assert (clock.now(), clock.second, clock.started) == (1000.0, 1000, 1000.0)
    assert wall.calls == 1


def test_second_changes_only_with_tick():
    monotonic = Source(5.0)
    clock = Clock(monotonic, Source(1000.75))
    monotonic.now += 1.5
    assert clock.second == 1000
    clock.tick()
    assert clock.second == 1002


def test_advance_moves_now_and_second():
    monotonic = Source(5.0)
    clock = Clock(monotonic, Source(1000.0))
    clock.advance(10)
    clock.advance(0.5)
    assert (clock.now(), clock.second, clock.started) == (1010.5, 1010, 1000.0)
    monotonic.now += 1
    assert clock.now() == 1011.5


def test_advancing_by_a_negative_time_moves_back():
    clock = Clock(Source(5.0), Source(1000.0))
    clock.advance(-10)
    assert (clock.now(), clock.second) == (990.0, 990)


def test_real_sources_are_the_default():
    clock = Clock()
    first = clock.now()
    assert abs(first - clock.started) < 60
    assert clock.now() >= first
