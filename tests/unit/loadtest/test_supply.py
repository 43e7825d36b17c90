"""The stream of operations shared by a worker's connections."""

import pytest

from memlite.loadtest.supply import Supply
from memlite.loadtest.workload import Keys, Load, Workload


def supply(workload, worker=0, workers=1, verify=False):
    return Supply(workload, worker=worker, workers=workers, seed=1, verify=verify)


def test_the_stream_is_endless_without_an_operation_count():
    one = supply(Workload())
    assert not one.finite
    assert len(one.take(1)) == 1
    assert len(one.take(100)) == 100


def test_the_operation_count_is_divided_among_workers():
    workload = Workload(load=Load(operations=10))
    taken = []
    for worker in range(3):
        one = supply(workload, worker, 3)
        assert one.finite
        one.take(50)  # the warm-up
        one.pause()
        assert one.take(1) == one.take(2) == []
        one.begin()
        taken.append(sum(len(one.take(count)) for count in (1, 2, 1, 5)))
    assert taken == [4, 3, 3]


def test_the_stream_does_not_depend_on_batch_sizes():
    workload = Workload(keys=Keys(count=1000))
    one, other = supply(workload), supply(workload)
    assert [operation for _ in range(200) for operation in one.take(1)] == other.take(200)


def test_the_rate_is_divided_among_workers():
    times = [
        next(supply(Workload(load=Load(rate=1000)), worker, 4).arrivals) for worker in range(4)
    ]
    assert times == [0, 1_000_000, 2_000_000, 3_000_000]
    assert supply(Workload()).arrivals is None


@pytest.mark.parametrize("mix", [{"gets": 1}, {"cas": 1}, {"get": 1}])
def test_values_are_kept_if_unique_values_are_needed(mix):
    assert supply(Workload(mix=mix)).keep_values == ("get" not in mix)
    assert supply(Workload(mix=mix), verify=True).keep_values


def trace(tmp_path, *lines):
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(["time,operation,key,size", *lines, ""]))
    return Workload(trace=str(path))


def test_a_trace_with_times(tmp_path):
    one = supply(trace(tmp_path, "5.0,set,a,3", "5.25,get,a,", "6,get,b,"))
    assert one.finite
    arrived = []
    for time in one.arrivals:
        (operation,) = one.take(1)
        arrived.append((time, operation.request.split()[0]))
    assert arrived == [(0, b"set"), (250_000_000, b"get"), (1_000_000_000, b"get")]
    assert one.take(1) == []
    assert one.error is None


def test_a_trace_without_times(tmp_path):
    one = supply(trace(tmp_path, ",set,a,3", ",get,a,", ",get,b,"))
    assert one.arrivals is None
    assert len(one.take(2)) == 2
    assert len(one.take(2)) == 1
    assert one.take(1) == []


def test_a_malformed_line_ends_the_stream(tmp_path):
    one = supply(trace(tmp_path, "0,set,a,3", "1,fly,a,"))
    assert len(list(one.arrivals)) == 1
    assert "fly" in str(one.error)


def test_an_empty_trace(tmp_path):
    one = supply(trace(tmp_path))
    assert one.finite
    assert one.take(1) == []
