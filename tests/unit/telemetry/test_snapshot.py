"""Snapshots hold the counter values at the time they were taken."""

import dataclasses
import inspect

import pytest

from memlite.telemetry import snapshot
from memlite.telemetry.counters import Counters
from memlite.telemetry.snapshot import CounterValues


def test_every_counter_is_in_the_snapshot():
    assert {*CounterValues._fields} == {*Counters.NAMES, "cmd_get", "operations"}


def test_each_value_equals_the_counter_of_its_name():
    counters = Counters()
    for number, name in enumerate(Counters.NAMES):
        setattr(counters, name, 1 + number)
    values = CounterValues.read(counters)
    assert values._asdict() == {name: getattr(counters, name) for name in CounterValues._fields}
    counters.reset()
    assert values.cmd_set == 1 + Counters.NAMES.index("cmd_set")
    assert not any(CounterValues.read(counters))


@pytest.mark.parametrize("name", snapshot.__all__)
def test_snapshots_cannot_be_changed(name):
    kind = getattr(snapshot, name)
    if inspect.isclass(kind) and not issubclass(kind, tuple):
        assert dataclasses.is_dataclass(kind)
        assert kind.__dataclass_params__.frozen
