"""The overview of a comparison of many clusters."""

import dataclasses
import io
import re

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest import overview
from memlite.loadtest.prices import load
from memlite.loadtest.report import write_report
from memlite.loadtest.report.compare import combine
from memlite.loadtest.results import MachineUse
from memlite.loadtest.statistics import point
from memlite.loadtest.summary import print_summary
from memlite.loadtest.verdict import findings, generator_warnings, warnings
from tests.unit.loadtest.test_scaling import measured, run

NODES = (1, 2, 3, 4)


def cluster(nodes, path, throughput, *, varying=0.01, disturbed=0.0, proxy=0.9, **arguments):
    """Return a point of three repetitions, whose throughput varies by the share `varying`."""
    shares = {f"node-{number + 1}": 0.3 for number in range(nodes)}
    if path == "proxied":
        shares["proxy"] = proxy
    name = f"{nodes} node{'s' if nodes > 1 else ''}, {path}"
    repetitions = []
    for change in (-varying, 0, varying):
        one = measured(name, throughput * (1 + change), shares, **arguments)
        machine = MachineUse(disturbed, 0.0)
        repetitions.append(dataclasses.replace(one.repetitions[0], machine=machine))
    return point(name, one.clients, 0.0, one.value_size, repetitions)


def study(*, cores=64, sizes=(100,), clients=(5, 50), generator=0.5, **arguments):
    """Return clusters that scale if asked directly, and do not scale with a proxy."""
    points = [
        cluster(
            nodes,
            path,
            (50_000 if path == "proxied" else 60_000 * nodes) * count / clients[-1] * 100 / size,
            clients=count,
            size=size,
            generator=generator if path != "proxied" else 0.5,
            **arguments,
        )
        for size in sizes
        for nodes in NODES
        for path in ("proxied", "direct", "asked")
        for count in clients
    ]
    return run(*points, cores=cores)


def test_the_main_findings():
    found = findings(study())
    assert found[0] == (
        "The fastest: direct with 4 nodes, 240,000 operations per second at 50 clients. Others may "
        "be as fast: asked with 4 nodes (the difference is within the variation between "
        "repetitions). The slowest: proxied with 4 nodes, 50,000, 0.21 times (0.2 to 0.21) that."
    )
    assert found[1] == (
        "4 nodes compared with 1: no significant difference (proxied); 4 times (3.9 to 4.1) "
        "the throughput (direct and asked). The bottleneck with 4 nodes: the proxy (proxied)."
    )
    assert found[2].startswith("With 4 nodes, throughput through the proxy is 0.21 times")
    assert found[2].endswith(" directly, at 50 clients.")
    assert found[3].startswith("Behind the proxy, an operation takes")
    assert found[4].startswith("All 12 clusters were fastest at the highest load, 50 clients")
    assert len(found) == 5


def test_findings_are_not_certain_if_repetitions_differ():
    found = " ".join(findings(study(varying=0.9)))
    assert "The fastest cluster cannot be determined: all 12 serve between" in found
    assert "no significant difference (proxied, direct and asked)" in found
    assert "throughput does not differ significantly between the proxy and the direct path" in found
    disturbed = findings(study(disturbed=0.5))
    assert "other programs used up to 50%" in disturbed[0]
    assert "4 nodes compared with 1: unknown, because other programs" in disturbed[1]
    assert re.search(r"50,000 operations per second through .* directly \(other", disturbed[2])


def test_clusters_limited_by_the_load_generator_may_be_faster():
    results = study(generator=0.99)
    found = findings(results)
    assert "Others may be as fast" in found[0]
    assert "(the load generator is the bottleneck)" in found[0]
    assert "the load generator (direct and asked)" in found[1]
    (warning,) = generator_warnings(results)
    assert warning == (
        "The load generator was the bottleneck for direct with 1, 2, 3 and 4 nodes, asked with 1, "
        "2, 3 and 4 nodes: they may be faster than these figures suggest."
    )


def test_a_disturbed_machine_is_one_warning():
    (warning,) = (one for one in warnings(study(disturbed=0.5)) if "other programs" in one)
    assert warning.startswith("While all 12 clusters were measured, other programs used up to 50%")


def test_each_size_of_values_has_a_table():
    results = study(sizes=(100, 1000))
    small, large = overview.grids(results)
    assert (small.title, large.title) == (
        "Operations per second, values of 100 B",
        "Operations per second, values of 1 kB",
    )
    assert small.labels == ("proxied", "direct", "asked")
    assert small.rows[3] == ("4 nodes", (("50 k", "P"), ("240 k", ""), ("240 k", "")))
    assert small.legend == "P: limited by a proxy"
    found = findings(results)
    assert found[0].startswith("The fastest with values of 100 B: direct with 4 nodes")
    other = "with values of other sizes: of 1 kB, direct with 4 nodes, 24,000."
    assert any(one.startswith("The highest throughput") and one.endswith(other) for one in found)


def test_a_machine_that_all_share_is_named():
    found = findings(study(cores=1))
    assert any(one.startswith("All nodes, proxies and the load generator shared") for one in found)


def test_only_one_load():
    assert findings(study(clients=(20,)))[-1] == (
        "Only one load was tested, 20 clients: more may reach a higher throughput."
    )


def test_few_clusters_and_other_servers_have_their_own_sentences():
    few = run(*(cluster(nodes, "direct", 1000) for nodes in (1, 2, 3)))
    assert not overview.summarises(few)
    assert not overview.grids(few)
    assert "sustains" in findings(few)[0]


def test_runs_that_are_combined_have_columns_of_their_own():
    (grid,) = overview.grids(combine([study(), dataclasses.replace(study(), title="later")]))
    assert len(grid.labels) == 6
    assert all(cell.throughput != "–" for _, cells in grid.rows for cell in cells)


def test_on_a_terminal_of_80_columns():
    stream = io.StringIO()
    print_summary(study(sizes=(100, 1000)), load(), stream)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert re.search("\n4 nodes +50 k P +240 k +240 k *\n", text)
    longest = max(text.split("\n\n")[3:], key=len)
    assert len(longest) < 450, "a finding is too long"


@pytest.mark.usefixtures("without_figures")
def test_the_report(tmp_path):
    page, *_ = write_report([study()], tmp_path)
    text = page.read_text()
    assert '<table class="grid">' in text
    assert "P: limited by a proxy" in text
    few = run(*(cluster(nodes, "direct", 1000) for nodes in (1, 2, 3)))
    page, *_ = write_report([few], tmp_path / "few")
    assert '<table class="grid">' not in page.read_text()
