"""The size from which sharding pays, for runs with known times."""

import dataclasses
import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.client.address import Address
from memlite.cluster.topology import Node, Topology
from memlite.core.errors import ConfigError
from memlite.loadtest.multigets.analysis import buckets, compare_sizes, doubts, sentence
from memlite.loadtest.multigets.cluster import prefixes
from memlite.loadtest.multigets.command import print_comparison
from memlite.loadtest.multigets.page import write_multigets
from memlite.loadtest.multigets.runs import (
    Run,
    Settings,
    load_runs,
    save_runs,
    with_proxy,
)
from memlite.loadtest.results import Latency
from memlite.loadtest.statistics import latency, new_histogram
from memlite.proxy.trace_rows import COLUMNS
from tests.support.copied import copied_tables, without_numbers

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9)
SETTINGS = Settings(SIZES, 3, 6, 1000, 100, 1.0, 4, 1)


def times(mean: float, count: int = 200) -> Latency:
    histogram = new_histogram()
    for number in range(count):
        histogram.record_value(round(mean * (0.5 + number / count)))
    return latency(histogram)


def runs(ratio: Callable[[int], float], noise: float = 0.01, repetitions: int = 4) -> list[Run]:
    """Return runs in which sharded gets take `ratio` times as long as whole gets."""
    chance = random.Random(2)
    found = []
    for number in range(1, repetitions + 1):
        for size in SIZES:
            for sharded in (True, False):
                mean = 1000.0 * size * (ratio(size) if sharded else 1) * chance.gauss(1, noise)
                found.append(
                    Run(size, sharded, number, 0.0, 1.0, 1e6 / mean, 0, 0, 0.3, 0.0, times(mean))
                )
    return found


def test_the_size_from_which_sharding_pays() -> None:
    found = compare_sizes(runs(lambda size: {4: 1.0, 5: 1.0}.get(size, 1.2 if size < 4 else 0.8)))
    assert [one.size for one in found if one.pays] == [6, 7, 8, 9]
    assert [one.size for one in found if one.costs] == [2, 3]
    assert found[0].decision == "–"
    for one in found:
        assert one.ratio.low is not None
        assert one.ratio.high is not None
        assert one.ratio.low <= one.ratio.mean <= one.ratio.high
    text = sentence(found)
    assert text.startswith("Sharding pays off with 6 or more keys: with 9 keys a get is 2")
    assert text.endswith("faster; not significant with 4 and 5; slower with 2 and 3.")


def test_sharding_that_costs() -> None:
    text = sentence(compare_sizes(runs(lambda size: 1.0 if size < 3 else 1.5)))
    assert text.startswith("Sharding is slower with 3 or more keys: with 9 keys a get is 5")
    assert text.endswith("slower; not significant with 2.")


def test_without_a_size_from_which_sharding_pays() -> None:
    none = sentence(compare_sizes(runs(lambda size: 1.0, noise=0.003)))
    assert none.startswith(
        "Sharding does not pay off at any size up to 9 keys; if it is faster at all, by"
    )
    noisy = sentence(compare_sizes(runs(lambda size: 0.92, noise=0.2)))
    assert noisy == "Up to 9 keys, the size from which sharding pays off cannot be determined."
    once = sentence(compare_sizes(runs(lambda size: 0.5 if size == 3 else 1.0)))
    assert once.startswith(
        "Up to 9 keys, the size from which sharding pays off cannot be determined; "
    )
    assert "faster with 3; the difference is not statistically significant with 2, 4, " in once
    slow = sentence(compare_sizes(runs(lambda size: 1.5 if size == 3 else 1.0, noise=0.003)))
    assert slow.startswith(
        "Sharding does not pay off at any size up to 9 keys: it is slower with 3; "
    )
    one = sentence(compare_sizes(runs(lambda size: 0.5, repetitions=1)))
    assert one == "With one repetition, the size from which sharding pays off cannot be determined."
    alone = [run for run in runs(lambda size: 1.0) if run.size == 1]
    assert "gets of one key" in sentence(compare_sizes(alone))


def test_percentiles() -> None:
    (one, *_) = compare_sizes([run for run in runs(lambda size: 2.0, noise=0.0) if run.size == 2])
    assert one.sharded.client == pytest.approx((3000, 4000, 5000, 5600, 5960), rel=0.01)
    assert one.together.client == pytest.approx((1500, 2000, 2500, 2800, 2980), rel=0.01)
    assert one.sharded.proxy == ()


def test_buckets_are_shared_and_lose_no_times() -> None:
    given = [times(20.0), times(3000.0, 500), Latency()]
    bounds, counts = buckets(given)
    assert [round(float(one.sum())) for one in counts] == [200, 500, 0]
    assert all(len(one) == len(bounds) - 1 for one in counts)
    assert bounds[0] <= 10 and bounds[-1] >= 4400
    below = bounds[:-1] >= 100
    assert counts[0][below].sum() == 0
    assert counts[1][~below].sum() == 0
    bounds, (nothing,) = buckets([Latency()])
    assert not nothing.any()


def test_doubts() -> None:
    (run, *_) = runs(lambda size: 1.0)
    assert doubts([run]) == []
    busy = Run(2, True, 1, 0.0, 1.0, 1.0, 3, 2, 0.95, 0.4, times(10.0))
    text = " ".join(doubts([run, busy]))
    for part in ("95% of a core", "40% of the machine", "2 requests failed", "3 keys were not"):
        assert part in text


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_keys_with_a_prefix_are_on_one_node(nodes: int) -> None:
    found = prefixes(nodes)
    assert len({len(one) for one in found}) == 1
    where = tuple(Node(f"node-{number}", Address("::1", number)) for number in range(1, nodes + 1))
    router = Topology(where, hash_tag="{}").router()
    for index, prefix in enumerate(found):
        assert {router.index(f"{prefix}{number}".encode()) for number in range(200)} == {index}
        spread = prefix.replace("{", "[").replace("}", "]")
        placed = [router.index(f"{spread}{number}".encode()) for number in range(300)]
        assert min(placed.count(one) for one in range(nodes)) > 20


def test_runs_are_saved_and_get_the_proxys_times(tmp_path: Path) -> None:
    assert load_runs(SETTINGS, tmp_path) == []
    begun = 1_790_000_000.0
    measured = [
        Run(2, sharded, 1, begun + 10 * sharded, 2.0, 5.0, 0, 0, 0.1, None, times(100.0))
        for sharded in (True, False)
    ]
    save_runs(SETTINGS, measured, tmp_path)
    assert load_runs(SETTINGS, tmp_path) == measured
    other = Settings((1,), 3, 6, 1000, 100, 1.0, 4, 1)
    with pytest.raises(ConfigError, match="contains measurements with other options"):
        load_runs(other, tmp_path)
    lines = [",".join(map(str, COLUMNS))]
    for start, taken in ((begun + 1, 300), (begun + 11, 700), (begun + 5, 900)):
        values = dict.fromkeys(map(str, COLUMNS), "1")
        values["arrival"] = str(int(start * 1e6))
        values["replied"] = str(int(start * 1e6) + taken)
        lines.append(",".join(values.values()))
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(lines) + "\n")
    sharded, together = with_proxy(measured, trace)
    assert sharded.proxy is not None
    assert together.proxy is not None
    assert (sharded.proxy.count, sharded.proxy.p50) == (1, pytest.approx(700, rel=0.01))
    assert (together.proxy.count, together.proxy.p50) == (1, pytest.approx(300, rel=0.01))
    save_runs(SETTINGS, [sharded, together], tmp_path)
    assert load_runs(SETTINGS, tmp_path) == [sharded, together]
    (tmp_path / "multigets.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not a multi-gets file"):
        load_runs(SETTINGS, tmp_path)


@pytest.mark.usefixtures("without_figures")
def test_doubts_come_first(tmp_path: Path) -> None:
    """Before the answer and all tables, in the terminal and on the page."""
    measured = [dataclasses.replace(run, generator_share=0.99) for run in runs(lambda size: 0.5)]
    found = compare_sizes(measured)
    out = io.StringIO()
    print_comparison(found, doubts(measured), out)
    first, *_ = out.getvalue().splitlines()
    assert first.startswith("A load generator process used up to 99% of a core")
    shown = out.getvalue()
    assert shown.index("Sharding pays off with 2 or more keys") < shown.index("ratio")
    page = write_multigets(SETTINGS, doubts(measured), found, tmp_path).read_text()
    assert 0 < page.index("99% of a core") < page.index('id="answer"') < page.index("<table")
    tables = copied_tables(page)
    assert set(tables) == {"multigets", "multigets-percentiles"}
    assert [without_numbers(rows) for rows in tables.values()] == [[], []]
    two = next(row for row in tables["multigets"] if row["Keys"] == "2")
    assert float(two["Ratio"]) == pytest.approx(0.5, rel=0.1)
    assert float(two["Ratio, 95% low"]) < float(two["Ratio"]) < float(two["Ratio, 95% high"])
