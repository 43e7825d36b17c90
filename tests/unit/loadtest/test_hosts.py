"""Options for other machines, which processes run on which machine, and how busy machines are."""

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from memlite.core.errors import ConfigError
from memlite.loadtest.clusters import clusters
from memlite.loadtest.launching import Launch
from memlite.loadtest.options import parse
from memlite.loadtest.options.hosts import without_access
from memlite.loadtest.places import HERE, in_turn
from memlite.loadtest.planning import machines_of, plan_of
from memlite.loadtest.remote.machine import Access, RemoteMachine
from memlite.loadtest.results import Placed, ServerUse
from memlite.loadtest.scaling import machine_shares
from memlite.loadtest.study.common import parse_common
from memlite.loadtest.study.machines import names_of, table_of_machines
from memlite.loadtest.targets import LaunchSettings


def places(count: int) -> list[RemoteMachine]:
    return [RemoteMachine(str(number), Access()) for number in range(count)]


@pytest.mark.parametrize(
    ("machines", "nodes", "proxies", "expected"),
    [
        (5, 3, 2, ("012", "34")),
        (3, 1, 2, ("0", "12")),
        (3, 3, 2, ("012", "01")),
        (2, 3, 1, ("010", "1")),
        (1, 2, 1, ("00", "0")),
        (4, 2, 0, ("01", "")),
    ],
)
def test_processes_are_spread_over_machines(
    machines: int, nodes: int, proxies: int, expected: tuple[str, str]
) -> None:
    found = in_turn(places(machines), nodes, proxies)
    assert tuple("".join(one.host for one in some) for some in found) == expected  # type: ignore[attr-defined]


def test_without_hosts_everything_runs_here() -> None:
    assert in_turn([HERE], 2, 1) == ([HERE, HERE], [HERE])
    assert machines_of(parse_common("memory", [])) == []


def test_how_machines_are_reached() -> None:
    options = parse_common(
        "memory",
        [
            "--hosts=a,me@b",
            "--ssh=ssh -i 'my key'",
            "--remote-memlite",
            "/opt/memlite",
            "--ports=7:9",
        ],
    )
    first, second = machines_of(options)
    assert (first.host, second.host) == ("a", "me@b")
    command = Access(tuple(options.ssh), tuple(options.remote_memlite), options.ports).command("a")
    assert command[:3] == ["ssh", "-i", "my key"]
    assert command[-3:] == ["--", "a", "/opt/memlite bench launcher"]
    assert options.ports == (7, 9)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ssh", "x"], "--ssh requires --hosts"),
        (["--ports", "1:2"], "--ports requires --hosts"),
        (["--hosts", "a"], "--hosts requires --cluster"),
        (["--hosts", "a,a", "--cluster", "1"], "a is given twice"),
        (["--hosts=-oProxyCommand=x", "--cluster", "1"], "not a machine"),
        (["--hosts", "a", "--ports", "9:1", "--cluster", "1"], "not ports: '9:1'"),
        (["--hosts", "a", "--ports", "1:70000", "--cluster", "1"], "not ports"),
        (["--hosts", "a", "--ssh", "", "--cluster", "1"], "must not be empty"),
        (["--hosts", "a", "--cluster", "1", "--data-dir", "/"], "--data-dir cannot be combined"),
        (
            ["--hosts", "a", "--cluster", "1", "--proxy-option", "trace=x"],
            "--proxy-option trace cannot be combined with --hosts: proxies run elsewhere",
        ),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        options = parse(["compare", *arguments])
        assert options is not None
        plan_of(options, arguments, Path())


def test_options_for_access_are_not_part_of_what_is_measured() -> None:
    given = ["--hosts=a", "--ssh=ssh -i key", "--keys=1", "--ports", "1:2", "--remote-memlite", "x"]
    assert without_access([*given, "--verify"]) == ["--hosts=a", "--keys=1", "--verify"]


def test_processes_on_a_machine_share_its_cores() -> None:
    placed = {"node-1": Placed("a", 2), "proxy": Placed("a", 2), "node-2": Placed("b", 4, "Z80")}
    uses = {
        name: ServerUse(cpu_seconds=share, cpu_share=share, memory_bytes=0, thread_share=share)
        for name, share in {"node-1": 0.5, "proxy": 1.0, "node-2": 1.0}.items()
    }
    assert machine_shares(uses, placed) == {"a": 0.75, "b": 0.25}
    assert names_of({"x": placed}) == ["a", "b"]
    table = table_of_machines({"2 nodes, proxied": placed, "1 node": {"node-1": Placed("b", 4)}})
    assert [column.heading for column in table.columns][1:] == ["a (2 cores)", "b (4 cores)"]
    assert [list(row) for row in table.rows] == [
        ["2 nodes, proxied", "node-1, proxy", "node-2"],
        ["1 node", "–", "node-1"],
    ]


class RecordingPlace:
    """A place that starts nothing, and records the errors that end its contexts."""

    placed = None

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextlib.contextmanager
    def start(self, launch: Launch, folder: Path) -> Iterator[Any]:
        try:
            yield SimpleNamespace(address=("127.0.0.1", 1), process=None, disk="ext4")
        except BaseException as error:
            self.errors.append(error)
            raise


def test_an_error_that_ends_a_measurement_reaches_all_places(tmp_path: Path) -> None:
    place, interrupted = RecordingPlace(), KeyboardInterrupt()
    (cluster,) = clusters(
        [2], ["proxied"], [1], ["memory"], LaunchSettings(tmp_path), places=[place]
    )
    with pytest.raises(KeyboardInterrupt), cluster:
        raise interrupted
    assert place.errors == [interrupted] * 3
