"""Detection of hot keys."""

import pytest

from memlite.proxy.loads import Load, hot, loads_of, worth_it


def report(total: float, **keys: tuple[float, float]) -> dict[str, str]:
    """Return a node's statistics: requests per second of each key, and the changes among them."""
    rows = {"hotkeys:sample_interval": "256", "hotkeys:per_second": str(total)}
    for rank, (key, (rate, changes)) in enumerate(keys.items(), 1):
        name = f"hotkeys:{rank}:"
        rows[name + "key"] = key
        rows[name + "requests"] = str(60 * rate)
        rows[name + "changes"] = str(60 * changes)
        rows[name + "error"] = "0"
        rows[name + "per_second"] = str(rate)
    return rows


def test_shares_are_relative_to_the_load_of_an_average_node() -> None:
    reports = [report(1600, a=(600, 0)), report(1000, b=(200, 100)), report(400)]
    loads = loads_of(reports, 3)
    assert loads[b"a"] == Load(60.0, 600.0, 0.0)
    assert loads[b"b"] == Load(20.0, 100.0, 100.0)


def test_promoted_keys_have_the_share_that_they_would_have_without_copies() -> None:
    """300 reads and 10 changes per second on three nodes: a copy gets three requests a change."""
    reports = [
        report(1000, a=(110, 10)),
        report(1000, a=(130, 20)),
        report(1000, a=(130, 20)),
    ]
    assert loads_of(reports, 3, {b"a"})[b"a"] == Load(31.0, 300.0, 10.0)


def test_few_samples_do_not_count() -> None:
    assert loads_of([report(100, a=(85, 0), b=(86, 0))], 1).keys() == {b"b"}
    assert loads_of([report(100, a=(1, 0))], 1, {b"a"}).keys() == {b"a"}


def test_errors_do_not_count() -> None:
    rows = report(1000, a=(500, 0))
    rows["hotkeys:1:error"] = "15000"
    assert loads_of([rows], 2)[b"a"] == Load(50.0, 250.0, 0.0)


@pytest.mark.parametrize("rows", [{}, {"hotkeys:1:key": "a"}, {"hotkeys:1:key": "%", "x": ""}])
def test_malformed_reports_are_ignored(rows: dict[str, str]) -> None:
    assert loads_of([rows], 3) == {}


def test_keys_that_change_often_are_not_worth_copies() -> None:
    loads = {
        b"read": Load(50.0, 1000.0, 0.0),
        b"written": Load(90.0, 1000.0, 100.0),
        b"hot": Load(70.0, 3000.0, 100.0),
        b"cold": Load(10.0, 3000.0, 0.0),
    }
    assert hot(loads, 3, 20) == [b"hot", b"read"]
    assert not worth_it(Load(50.0, 2000.0, 100.0), 3, promoted=False)
    assert worth_it(Load(50.0, 2000.0, 100.0), 3, promoted=True)
    assert not worth_it(Load(50.0, 1000.0, 100.0), 3, promoted=True)
