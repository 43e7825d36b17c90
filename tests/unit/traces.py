"""Which items a cache is asked for, one after another."""

import bisect
import itertools
import random


def zipf(items, length, exponent, seed=1):
    rng = random.Random(seed)
    sums = list(itertools.accumulate((rank + 1) ** -exponent for rank in range(items)))
    return [bisect.bisect(sums, rng.random() * sums[-1]) for _ in range(length)]


def uniform(items, length, seed=1):
    rng = random.Random(seed)
    return [rng.randrange(items) for _ in range(length)]


def loop(items, length):
    return [number % items for number in range(length)]


def scans(items, length, seed=1):
    """Zipf, and now and then many items in a row that are asked for once, or once more later."""
    trace, first = [], 10**6
    for count, number in enumerate(zipf(items, length, 1.0, seed)):
        trace.append(number)
        if count % 5000 == 4999:
            trace.extend(range(first, first + 800))
            first += 800 if count // 5000 % 2 else 0
    return trace


def shifting(items, length, exponent=1.0, seed=1):
    """Zipf over items that are others in each tenth of the trace."""
    step = items // 2
    return [
        number + count * 10 // length * step
        for count, number in enumerate(zipf(items, length, exponent, seed))
    ]
