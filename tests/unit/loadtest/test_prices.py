"""Cost estimates for a million operations, and price tables."""

import dataclasses

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.core.errors import ConfigError
from memlite.loadtest import prices
from memlite.loadtest.prices import Prices, assumptions, costs
from memlite.loadtest.results import Interval, Latency
from tests.unit.loadtest.samples import results

ROUND = Prices("List", "2026-01", "EUR", "vm", 0.36, "disk", 10, 0.073, "bucket", 0.005, 0.0004)


def sample(throughput=1000.0, operations=1000, reads=900, deletions=0):
    made = results(clients=(10,))
    points = [
        dataclasses.replace(
            point,
            throughput=Interval(throughput),
            response={"delete": Latency(count=deletions)},
            repetitions=[
                dataclasses.replace(
                    point.repetitions[0], operations=operations, hits=reads, misses=0
                )
            ],
        )
        for point in made.points
    ]
    return dataclasses.replace(made, points=points)


def test_the_formula():
    memory, file, gcs = costs(sample(), ROUND)
    # A million operations at 1,000 a second take 1,000 seconds.
    assert memory.machine == pytest.approx(0.1)
    assert memory.total == pytest.approx(0.1)
    assert file.disk == pytest.approx(0.73 / 730 / 3.6)
    assert file.total == pytest.approx(0.1 + file.disk)
    assert (gcs.reads, gcs.writes) == pytest.approx((0.36, 0.5))
    assert gcs.total == pytest.approx(0.1 + 0.36 + 0.5)


@pytest.mark.parametrize(
    ("kind", "hour", "machine", "store"),
    [("valkey", 0.72, 0.1, 0.2), ("redis-direct", 0.72, 0.0, 0.2), ("valkey", None, 0.1, 0.1)],
)
def test_a_store_has_a_machine_of_its_own(kind, hour, machine, store):
    """Without a price of its own, the store's machine costs as much as the server's."""
    made = sample()
    targets = [dataclasses.replace(target, kind=kind) for target in made.targets[:1]]
    made = dataclasses.replace(made, targets=targets)
    table = dataclasses.replace(ROUND, store="node", store_hour=hour)
    cost = costs(made, table)[0]
    assert (cost.machine, cost.store) == pytest.approx((machine, store))
    assert cost.total == pytest.approx(machine + store)
    assert "(node, " in " ".join(assumptions(table, [cost], made))


def test_deletions_are_writes():
    gcs = costs(sample(deletions=100), ROUND)[2]
    assert gcs.writes == costs(sample(), ROUND)[2].writes > 0


def test_the_highest_throughput_counts():
    made = results()
    for cost in costs(made, ROUND):
        points = [point for point in made.points if point.target == cost.target]
        assert cost.throughput == max(point.throughput.mean for point in points)


def test_a_target_without_operations_has_no_cost():
    assert costs(sample(throughput=0.0, operations=0, reads=0), ROUND) == []


def test_assumptions_match_the_backends_used():
    made = sample()
    found = costs(made, ROUND)
    text = " ".join(assumptions(ROUND, found, made))
    for part in ("List, as of 2026-01", "vm, 0.36 EUR per hour", "10 GiB", "class A", "near cache"):
        assert part in text
    text = " ".join(assumptions(ROUND, found[:1], made))
    assert "GiB" not in text
    assert "class A" not in text


def test_the_default_table():
    table = prices.load()
    assert table.currency == "USD"
    assert (table.class_a, table.class_b) == (0.005, 0.0004)


def default_text():
    from importlib import resources

    return resources.files("memlite.loadtest").joinpath("prices.toml").read_text()


def test_a_copy_can_be_edited(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(default_text().replace("0.0670", "1", 1))
    assert prices.load(file) == dataclasses.replace(prices.load(), machine_hour=1.0)


def test_a_table_without_a_store_is_still_accepted(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(default_text().rpartition("\n[store]\n")[0])
    assert prices.load(file).store_hour is None


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("hour = 0.0670", "", "machine.hour is missing"),
        ("hour = 0.0670", "hour = '1'", "machine.hour must be a number, 0 or more"),
        ("hour = 0.0670", "hour = true", "machine.hour must be a number, 0 or more"),
        ("hour = 0.0670", "hour = -1", "machine.hour must be a number, 0 or more"),
        ("hour = 0.0670", "hour = nan", "machine.hour must be a number, 0 or more"),
        ("hour = 0.0670", "hour = inf", "machine.hour must be a number, 0 or more"),
        ('currency = "USD"', "currency = 1", "currency must be a string"),
        ("[bucket]", "[buckets]", "bucket.name is missing"),
        ("[bucket]", "bucket = 1 =", "is not a TOML file"),
        ('currency = "USD"', 'currency = "USD"\ndisk = 3', "is not a TOML file"),
    ],
)
def test_invalid_tables_are_refused(tmp_path, old, new, complaint):
    file = tmp_path / "mine.toml"
    assert old in default_text()
    file.write_text(default_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=complaint) as caught:
        prices.load(file)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_sections_must_be_tables(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "a"\ndate = "b"\ncurrency = "c"\nmachine = 3\n')
    with pytest.raises(ConfigError, match=r"machine must be a table: \[machine\]"):
        prices.load(file)


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        prices.load(tmp_path / "none.toml")


def test_a_file_that_is_not_utf_8(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not a TOML file"):
        prices.load(file)
