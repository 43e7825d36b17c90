"""Recording measurements, and summing the recordings of several workers."""

from hypothesis import given
from hypothesis import strategies as st

from memlite.loadtest.recorder import Recorder, Recording, percentile

SECOND = 1_000_000_000


def record(recorder, kind, microseconds, now):
    if now >= recorder.turn:
        recorder.next_interval(now)
    tally = recorder.response.setdefault(kind, {})
    tally[microseconds] = tally.get(microseconds, 0) + 1
    recorder.counts.operations += 1
    recorder.last = now


def test_the_time_series():
    recorder = Recorder()
    recorder.begin(5 * SECOND)
    record(recorder, "get", 10, 5 * SECOND + 1)
    record(recorder, "set", 20, 5 * SECOND + 2)
    recorder.counts.errors["timeout"] = 1
    record(recorder, "get", 30, 7 * SECOND + 1)  # nothing happened in between
    recording = recorder.end()
    assert recording.intervals == {0: ({10: 1, 20: 1}, 2, 1), 2: ({30: 1}, 1, 0)}
    assert recording.response == {"get": {10: 1, 30: 1}, "set": {20: 1}}
    assert (recording.began, recording.ended) == (5 * SECOND, 7 * SECOND + 1)


def test_begin_discards_earlier_records():
    recorder = Recorder()
    record(recorder, "get", 10, 1)
    recorder.counts.errors["timeout"] = 1
    recorder.begin(SECOND)
    record(recorder, "get", 20, SECOND + 1)
    recording = recorder.end()
    assert recording.response == {"get": {20: 1}}
    assert recording.counts.operations == 1
    assert not recording.counts.errors


def test_recordings_are_summed():
    total = Recording()
    for start, value in ((10, 5), (8, 7)):
        recorder = Recorder()
        recorder.begin(start)
        record(recorder, "get", value, start + 100)
        recorder.counts.errors["timeout"] = 2
        recorder.counts.hits = 1
        one = recorder.end()
        one.cpu = one.busiest = float(value)
        total.add(one)
    assert total.response == {"get": {5: 1, 7: 1}}
    assert total.intervals == {0: ({5: 1, 7: 1}, 2, 4)}
    assert (total.counts.operations, total.counts.hits) == (2, 2)
    assert total.counts.errors == {"timeout": 4}
    assert (total.began, total.ended) == (8, 110)
    assert (total.cpu, total.busiest) == (12, 7)


def test_the_percentile_of_an_empty_tally_is_0():
    assert percentile({}, 0.99) == 0


@given(st.lists(st.integers(0, 1000), min_size=1), st.floats(0.01, 1))
def test_percentiles(values, share):
    tally = {value: values.count(value) for value in values}
    found = percentile(tally, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values) + 1e-9
