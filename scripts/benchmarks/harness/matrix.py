"""The cost of gets and sets with many sizes, hit ratios, and numbers of connections."""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from harness.contestants import in_turn
from harness.processes import Running, load, progress
from harness.scenarios import Setting
from harness.workers import connected, times

__all__ = ["GROUPS", "Entry", "Shape", "compare_matrix", "entries", "shapes"]

GROUPS: Final = ("values", "keys", "hits", "connections")
_MEGABYTES: Final = 1024
_ITEM: Final = 350  # bytes of memory of an item with a value of 100
_KEYS: Final = 10_000
_ALL: Final = 100  # per cent
_MOST: Final = 100_000_000  # bytes of all values
# Operations of a measurement: for each second of --seconds, and at least for each connection.
_PER_SECOND: Final = 10_000
_PER_CONNECTION: Final = 20
_CONNECTIONS: Final = 11_000  # -c: enough for two loads, as one may still be closing
_SLOW: Final = 10_000  # bytes that take as long as the rest of an operation


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape of load: the stored items and the requests.

    Attributes:
        name: its distinguishing property.
        value: bytes of a value.
        key: bytes of a key.
        keys: the number of keys, chosen at random.
        hits: how many of 100 keys are stored.
        connections: the load generator's connections; 0 for the run's number.
    """

    name: str
    value: int = 100
    key: int = 12
    keys: int = _KEYS
    hits: int = _ALL
    connections: int = 0

    def arguments(self, keys: int) -> list[str]:
        """Return the load generator's options for this many keys."""
        return [f"--value-size={self.value}", f"--key-size={self.key}", f"--keys={keys}"]


def shapes(groups: Sequence[str], items: int) -> list[Shape]:
    """Return the shapes of some of `GROUPS`; those of connections store `items` items."""
    keys = items or _KEYS
    found = {
        "values": [
            Shape(f"value {size:,}", value=size, keys=min(_KEYS, _MOST // size))
            for size in (10, 100, 1000, 10_000, 100_000, 1_000_000)
        ],
        "keys": [Shape(f"key {size}", key=size) for size in (12, 50, 100, 250)],
        "hits": [Shape(f"{share}% hits", hits=share) for share in (50, 80, 95, 99)],
        "connections": [
            Shape(f"{count:,} conn., {keys:,} items", keys=keys, connections=count)
            for count in (1, 8, 50, 200, 1000, 5000)
        ],
    }
    return [one for group in groups for one in found[group]]


@dataclass(frozen=True, slots=True)
class Entry:
    """The median cost of a request on one server.

    Attributes:
        shape: the name of the shape.
        request: ``get`` or ``set``.
        server: a contestant's name.
        microseconds: processor time per operation.
        peer: memcached's processor time per operation.
        efficiency: memcached's divided by the server's, within a round.
        rate_ratio: the throughput divided by memcached's, within a round.
    """

    shape: str
    request: str
    server: str
    microseconds: float
    peer: float
    efficiency: float
    rate_ratio: float


def compare_matrix(setting: Setting, groups: Sequence[str], items: int) -> list[dict[str, Any]]:
    """Measure every shape on every server; return the samples.

    Shapes that store items of other sizes have servers of their own. Connections are opened outside
    the measurement.

    Raises:
        BenchError: a server or the load generator failed.
    """
    found = []
    stored: dict[tuple[int, int, int], list[Shape]] = {}
    for shape in sorted(shapes(groups, items), key=lambda one: one.hits):
        stored.setdefault((shape.value, shape.key, shape.keys), []).append(shape)
    for alike in stored.values():
        first = alike[0]
        size = first.keys * (_ITEM + first.key + first.value)
        with ExitStack() as stack:
            servers = {
                one.name: stack.enter_context(
                    one.running(
                        setting.cores[0], _MEGABYTES + 2 * size // 2**20, "-c", str(_CONNECTIONS)
                    )
                )
                for one in setting.contestants
            }
            there = 0
            for shape in alike:
                if shape.hits > there:
                    there = shape.hits
                    _fill(setting, shape, servers)
                for request in ("get", "set") if there == _ALL else ("get",):
                    found += _rounds(setting, shape, request, servers)
    return found


def _fill(setting: Setting, shape: Shape, servers: dict[str, Running]) -> None:
    keys = shape.keys * shape.hits // _ALL
    # Many per write: otherwise ten million take too long.
    pipeline = f"--pipeline={max(1, min(100, 100_000 // shape.value))}"
    for which, server in servers.items():
        progress(f"{which}: storing {keys:,} items")
        fill = [*shape.arguments(keys), "--prefill", pipeline]
        load(setting.loadgen, server.port, setting.cores[1], fill)


def _rounds(
    setting: Setting, shape: Shape, request: str, servers: dict[str, Running]
) -> list[dict[str, Any]]:
    connections = shape.connections or setting.connections
    operations = max(
        round(setting.seconds * _PER_SECOND / (1 + shape.value / _SLOW)),
        _PER_CONNECTION * connections,
    )
    arguments = [
        *shape.arguments(shape.keys),
        f"--connections={connections}",
        f"--operations={operations}",
        *(("--gets=1", "--sets=0") if request == "get" else ("--gets=0", "--sets=1")),
    ]
    found = []
    for turn in range(1, setting.rounds + 1):
        progress(f"{shape.name}, {request}: round {turn} of {setting.rounds}")
        for which in in_turn(list(servers), turn):
            used, printed = _measure(setting, servers[which], [*arguments, f"--seed={turn}"])
            found.append(
                {
                    "scenario": "matrix",
                    "shape": shape.name,
                    "request": request,
                    "round": turn,
                    "server": which,
                    "microseconds": used / 1000 / printed["operations"],
                    "rate": printed["operations"] / printed["seconds"],
                    "load": printed,
                }
            )
    return found


def _measure(
    setting: Setting, server: Running, arguments: Sequence[str]
) -> tuple[int, dict[str, Any]]:
    """Return the server's processor time in nanoseconds, and the load generator's output."""
    with connected(setting, server, arguments) as run:
        before = times(server.pid)
        printed = run()
        after = times(server.pid)
    return sum(after.values()) - sum(before.values()), printed


def entries(samples: Sequence[dict[str, Any]], peer: str) -> list[Entry]:
    """Return the medians over the rounds of all servers but `peer`, the lowest efficiency first."""
    cells: dict[tuple[str, str], dict[str, dict[int, dict[str, Any]]]] = {}
    for one in samples:
        servers = cells.setdefault((one["shape"], one["request"]), {})
        servers.setdefault(one["server"], {})[one["round"]] = one
    median = statistics.median
    found = []
    for (shape, request), servers in cells.items():
        theirs = servers[peer]
        for server, ours in servers.items():
            if server == peer:
                continue
            pairs = [(theirs[turn], ours[turn]) for turn in ours]
            found.append(
                Entry(
                    shape,
                    request,
                    server,
                    median(one["microseconds"] for _, one in pairs),
                    median(one["microseconds"] for one, _ in pairs),
                    median(a["microseconds"] / b["microseconds"] for a, b in pairs),
                    median(b["rate"] / a["rate"] for a, b in pairs),
                )
            )
    return sorted(found, key=lambda one: one.efficiency)
