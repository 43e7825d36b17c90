"""The backend that the report recommends."""

import dataclasses

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest.prices import costs, load
from memlite.loadtest.recommendation import choices, recommendation
from memlite.loadtest.results import MachineUse, TargetInfo
from memlite.loadtest.statistics import point
from tests.unit.loadtest.samples import results


def recommended(measured, **factors):
    """Return the recommendation, with the costs of each target multiplied by a factor."""
    table = [
        dataclasses.replace(cost, machine=cost.machine * factors.get(cost.target, 1))
        for cost in costs(measured, load())
    ]
    return recommendation(choices(measured, table), "USD")


def changed(measured, target, **changes):
    """Return results in which all repetitions of a target have these fields."""
    points = [
        point(one.target, one.clients, one.rate, one.value_size,
              [dataclasses.replace(each, **changes) for each in one.repetitions])
        if one.target == target
        else one
        for one in measured.points
    ]  # fmt: skip
    return dataclasses.replace(measured, points=points)


def as_fast_as_memory(measured):
    """Return results in which `file` varies a little around the throughput of `memory`."""
    memory = {one.clients: one for one in measured.points if one.target == "memory"}
    return dataclasses.replace(
        measured,
        points=[
            point("file", one.clients, 0.0, 100,
                  [dataclasses.replace(each, operations=round(each.operations * factor))
                   for each, factor in zip(memory[one.clients].repetitions, (0.9, 0.99, 1.05),
                                           strict=True)])
            if one.target == "file"
            else one
            for one in measured.points
        ],
    )  # fmt: skip


def test_the_fastest_target_is_recommended_for_each_need():
    assert recommended(results()) == [
        (
            "If a cold cache after a crash is acceptable, use memory: 38,700 operations per "
            "second, 99 of 100 responses within 2.23 ms, 0.00046 USD per million operations."
        ),
        (
            "If items must survive a crash, use file: 0.46 times (0.44 to 0.47) the throughput of "
            "memory, 99 of 100 responses within 7.73 ms, 0.001 USD per million operations."
        ),
        (
            "If several servers must share items, use gcs: 0.036 times (0.035 to 0.037) the "
            "throughput of memory, 99 of 100 responses within 189 ms, 0.83 USD per million "
            "operations."
        ),
        "If items must survive the loss of the machine, gcs is still the best choice.",
    ]


def test_needs_that_no_target_meets_are_reported():
    assert recommended(results(kinds=("memory", "file")))[2:] == [
        "If several servers must share items, none of these is suitable.",
        "If items must survive the loss of the machine, none of these is suitable.",
    ]


def test_valkey_is_shared_but_may_not_survive_the_loss_of_the_machine():
    measured = results(kinds=("memory", "file"))
    targets = [
        dataclasses.replace(one, kind="valkey") if one.name == "file" else one
        for one in measured.targets
    ]
    found = recommended(dataclasses.replace(measured, targets=targets))
    assert found[1].startswith("If items must survive a crash, use file: ")
    assert found[2:] == [
        "If several servers must share items, file is still the best choice.",
        "If items must survive the loss of the machine, none of these is suitable.",
    ]


def test_a_target_may_meet_several_needs():
    found = recommended(results(kinds=("memory", "gcs")))
    assert found[1].startswith("If items must survive a crash, use gcs: ")
    assert found[2] == "If several servers must share items, gcs is still the best choice."


def test_a_stronger_promise_at_no_measurable_cost_is_preferred():
    found = recommended(as_fast_as_memory(results()))
    assert found[0].startswith(
        "If a cold cache after a crash is acceptable, use file, which survives a crash and "
        "is not measurably slower than memory: "
    )
    assert found[1] == "If items must survive a crash, file is still the best choice."


def test_a_stronger_promise_at_a_higher_price_is_not_preferred():
    found = recommended(as_fast_as_memory(results()), file=2)
    assert found[0].startswith("If a cold cache after a crash is acceptable, use memory: ")
    assert "use file: no measurable difference in throughput from memory, " in found[1]


@pytest.mark.parametrize(
    ("measured", "doubt"),
    [
        (lambda: results(repetitions=1), "there is only one repetition"),
        (
            lambda: changed(results(), "file", machine=MachineUse(0.43, 0.0)),
            "other programs used up to 43% of the machine's processors",
        ),
    ],
    ids=["repetitions", "programs"],
)
def test_only_supported_claims_are_made(measured, doubt):
    assert f"use file: relative throughput is unknown ({doubt}), " in recommended(measured())[1]


def test_without_known_promises_there_is_nothing_to_choose():
    measured = results(kinds=("memory", "file"))
    running = [TargetInfo(name, "server", "127.0.0.1:11211") for name in ("memory", "file")]
    assert recommended(dataclasses.replace(measured, targets=running)) == []
    assert recommended(results(kinds=("memory",))) == []
    assert recommended(results(clients=())) == []
    assert recommended(results(kind="concurrent")) == []


def test_a_target_without_operations_is_left_out():
    found = recommended(changed(results(), "gcs", operations=0))
    assert found[2].endswith("none of these is suitable.")
