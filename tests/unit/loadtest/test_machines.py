"""The table of machines, and throughput per watt and per price."""

import dataclasses
import signal

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.cli.main import main
from memlite.core.errors import ConfigError
from memlite.loadtest import machines
from memlite.loadtest.efficiency import efficiencies
from memlite.loadtest.files import save
from memlite.loadtest.report import write_report
from memlite.loadtest.report.compare import combine
from memlite.loadtest.results import Interval
from tests.unit.loadtest.samples import results

TABLE = """
currency = "EUR"
kilowatt-hour = 0.5
[bought]
watts = 10
purchase = 87.66
years = 1
[rented]
watts = 20
hour = 0.04
[unknown]
"""


@pytest.fixture(autouse=True)
def handlers():
    """Restore the handlers of signals that a command replaces."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "machines.toml"
    path.write_text(TABLE)
    return machines.load(path)


def sample(throughput, used, **more):
    made = results(kinds=("memory",), clients=(10,), **more)
    return dataclasses.replace(
        made,
        targets=[dataclasses.replace(made.targets[0], machines=used)],
        points=[dataclasses.replace(made.points[0], throughput=Interval(throughput))],
    )


def test_a_purchase_is_spread_over_its_years_and_electricity_added(table):
    # 87.66 over 8,766 hours, and 10 W at 0.50 a kilowatt-hour.
    assert table.find("bought").hour == pytest.approx(0.01 + 0.005)
    assert table.find("rented").hour == 0.04
    assert (table.find("unknown").watts, table.find("unknown").hour) == (None, None)


def test_the_formulas(table):
    (found,) = efficiencies(sample(1000.0, {"rented": 1}), table)
    assert (found.watts, found.hour) == (20, 0.04)
    assert found.per_joule == pytest.approx(50)
    assert found.per_money == pytest.approx(90_000_000)  # 3.6 million operations for 0.04


def test_several_machines_add_up(table):
    (found,) = efficiencies(sample(1000.0, {"rented": 2, "bought": 1}), table)
    assert found.watts == 50
    assert found.hour == pytest.approx(0.095)
    assert found.per_joule == pytest.approx(20)


def test_unknown_figures_are_left_out(table):
    (found,) = efficiencies(sample(1000.0, {"rented": 1, "unknown": 1}), table)
    assert (found.watts, found.hour, found.per_joule, found.per_money) == (None,) * 4
    assert efficiencies(sample(1000.0, {}), table) == []


@pytest.mark.usefixtures("without_figures")
def test_runs_on_different_machines_are_compared(table, tmp_path):
    both = [
        sample(1000.0, {"rented": 1}, title="cloud"),
        sample(400.0, {"bought": 1}, title="desk"),
    ]
    found = efficiencies(combine(both), table)
    assert [one.per_joule for one in found] == pytest.approx([50, 40])
    page, *_ = write_report(both, tmp_path / "out", machines=table)
    assert "Operations per EUR" in page.read_text()


def test_the_shipped_table():
    table = machines.load()
    assert table.currency == "USD"
    # 5.1 V and 1.2 A; 35 USD over three years.
    assert table.find("raspberry-pi-4b").watts == pytest.approx(5.1 * 1.2, rel=0.01)
    assert table.find("raspberry-pi-4b").hour == pytest.approx(35 / 3 / 8766)
    cpu, gib = 0.02181159, 0.00292353
    for name, cpus, memory in (("e2-small", 0.5, 2), ("e2-medium", 1, 4), ("e2-standard-4", 4, 16)):
        assert table.find(name).hour == pytest.approx(cpus * cpu + memory * gib, rel=1e-3)
        assert table.find(name).watts == pytest.approx(cpus * 3.87, rel=0.01)


def test_an_unknown_machine_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"did you mean 'e2-small'.*it has raspberry-pi-2b"):
        machines.load().find("e2-smal")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a", "not a TOML file"),
        ("currency = 1", "currency must be a string"),
        ("kilowatt-hour = -1", "kilowatt-hour must be a number, 0 or more"),
        ("watts = 1", "unknown key watts; a machine is a table"),
        ("[a]\nwats = 1", "unknown key a.wats; valid keys are watts, hour"),
        ("[a]\nwatts = true", "a.watts must be a number"),
        ("[a]\npurchase = 1", "a: purchase and years must be given together"),
        ("[a]\npurchase = 1\nyears = 0", "a.years must be more than 0"),
        ("[a]\npurchase = 1\nyears = 1\nhour = 1", "a: hour and purchase cannot be combined"),
    ],
)
def test_errors_in_a_table_are_reported(text, message, tmp_path):
    path = tmp_path / "machines.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="--machines: ") as raised:
        machines.load(path)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_report_on_a_machine_that_is_not_in_the_table(tmp_path, capsys):
    save(sample(1000.0, {"e2-smal": 1}), tmp_path)
    assert main(["bench", "report", str(tmp_path)]) == 64
    text = capsys.readouterr().err
    assert "has no 'e2-smal': did you mean 'e2-small'?" in text
    assert len(text.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["", ":2", "e2-small:0", "e2-small:x", "e2-smal"])
def test_a_wrong_machine_is_refused_before_anything_is_measured(name, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["bench", "run", "127.0.0.1:1", "--machine", name, "--out", str(out)]) == 64
    text = capsys.readouterr().err
    assert "--machine" in text
    assert len(text.splitlines()) == 1
    assert not out.exists()


def test_a_cluster_counts_the_machines_that_it_ran_on():
    assert machines.ran_on({"pi": 5}, []) == {"pi": 5}
    assert machines.ran_on({"pi": 5}, ["a", "b", "a"]) == {"pi": 2}
    assert machines.ran_on({}, ["a", "b"]) == {}
    # It is unknown which of them was used.
    assert machines.ran_on({"pi": 2, "server": 1}, ["a"]) == {"pi": 2, "server": 1}


@pytest.mark.parametrize("given", [["e2-small:2"], ["e2-small", "--machine", "e2-small"]])
def test_several_machines_are_refused_for_servers_started_here(given, tmp_path, capsys):
    arguments = ["bench", "compare", "--machine", *given, "--out", str(tmp_path / "out")]
    assert main([*arguments, "--cluster", "1,2"]) == 64
    assert "--machine: all servers run on this machine" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_power_and_the_price_of_each_machine_of_the_table_are_known():
    shipped = machines.load().machines.values()
    assert all(one.watts and one.hour and one.cores and one.memory for one in shipped)
    # A core and its memory cost about the same: a figure in the wrong unit would stand out.
    per_core = [one.hour / one.cores for one in shipped if one.rented]
    assert max(per_core) < 2 * min(per_core)
