"""The number of requests in the system, over time."""

import random

from memlite.loadtest.occupancy import Occupancy


def test_the_area_is_the_integral_of_the_number() -> None:
    occupancy = Occupancy()
    occupancy.arrived(5)
    occupancy.arrived(8)
    occupancy.begin(10)  # two are there
    occupancy.arrived(20)
    occupancy.left(30, 2)
    occupancy.arrived(50)
    assert occupancy.end(60) == (10 * 2 + 10 * 3 + 20 * 1 + 10 * 2, 2 + 2)
    assert occupancy.number == 2


def test_requests_that_were_not_sent_do_not_count() -> None:
    occupancy = Occupancy()
    occupancy.begin(0)
    occupancy.arrived(10)
    occupancy.left(10)
    assert occupancy.end(100) == (0, 0)


def test_the_order_of_recording_does_not_matter() -> None:
    noise = random.Random(1)
    spans = [(start := noise.randrange(1000), start + noise.randrange(500)) for _ in range(200)]
    events = [(moment, which) for span in spans for which, moment in enumerate(span)]
    noise.shuffle(events)
    occupancy = Occupancy()
    occupancy.begin(0)
    for moment, left in events:
        if left:
            occupancy.left(moment)
        else:
            occupancy.arrived(moment)
    assert occupancy.end(2000) == (sum(end - start for start, end in spans), 0)
