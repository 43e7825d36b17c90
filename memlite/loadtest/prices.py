"""What a million operations cost, from measured throughput and a table of prices.

::

    machine = price of an hour / operations in an hour × 1,000,000
    disk    = price of a GiB's month × GiB / 730 hours / operations in an hour × 1,000,000
    reads   = share of reads × price of a class B operation × 1,000,000
    writes  = share of writes × price of a class A operation × 1,000,000

``memory`` and other servers cost the machine; ``file`` the machine and the disk; ``gcs`` the
machine, reads and writes.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from memlite.errors import ConfigError
from memlite.loadtest import selection, units
from memlite.loadtest.results import Point, Results

__all__ = ["Cost", "Prices", "assumptions", "costs", "load"]

_MILLION = 1_000_000
_HOURS_A_MONTH = 730


@dataclass(frozen=True, slots=True)
class Prices:
    """A table of prices.

    Attributes:
        name: whose prices, and where.
        date: as of when.
        currency: of all of them, its code.
        machine: the machine's type.
        machine_hour: what an hour of it costs.
        disk: the disk's type.
        disk_gib: its size.
        disk_gib_month: what a GiB of it costs for a month.
        bucket: the bucket's storage class.
        class_a: what 1,000 writing operations cost.
        class_b: what 1,000 reading operations cost.
    """

    name: str
    date: str
    currency: str
    machine: str
    machine_hour: float
    disk: str
    disk_gib: float
    disk_gib_month: float
    bucket: str
    class_a: float
    class_b: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a million operations on a target cost, in the table's currency.

    Attributes:
        target: its name.
        clients: at which load.
        rate: likewise, 0 in closed loop.
        throughput: measured there, operations a second.
        machine: its share.
        disk: likewise; 0 without.
        reads: class B operations; 0 without a bucket.
        writes: class A operations; likewise.
    """

    target: str
    clients: int
    rate: float
    throughput: float
    machine: float
    disk: float = 0.0
    reads: float = 0.0
    writes: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.machine + self.disk + self.reads + self.writes


def load(path: Path | None = None) -> Prices:
    """Read a table of prices.

    Args:
        path: a TOML file; without one, the table that comes with memlite.

    Raises:
        ConfigError: it cannot be read, or a price is missing or is none.
    """
    where = "prices" if path is None else str(path)
    try:
        text = _default() if path is None else path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not even UTF-8
        raise ConfigError(f"{where} is not a TOML file: {error}") from None
    reader = _Reader(where, table)
    return Prices(
        name=reader.text("name"),
        date=reader.text("date"),
        currency=reader.text("currency"),
        machine=reader.text("machine.name"),
        machine_hour=reader.price("machine.hour"),
        disk=reader.text("disk.name"),
        disk_gib=reader.price("disk.gib"),
        disk_gib_month=reader.price("disk.gib-month"),
        bucket=reader.text("bucket.name"),
        class_a=reader.price("bucket.class-a"),
        class_b=reader.price("bucket.class-b"),
    )


def costs(results: Results, prices: Prices) -> list[Cost]:
    """Return what a million operations cost on each target, at its highest throughput.

    Args:
        results: targets that did nothing without error are left out.
        prices: of the machine, the disk and the bucket.
    """
    kinds = {target.name: target.kind for target in results.targets}
    points = selection.closed_loop(results) or selection.open_loop(results)
    groups = selection.by_target(results, selection.of_main_size(points))
    found = (
        _cost(selection.best(of_one), kinds.get(name, "server"), prices)
        for name, of_one in groups.items()
    )
    return [cost for cost in found if cost is not None]


def assumptions(prices: Prices, costs: Sequence[Cost], results: Results) -> list[str]:
    """Return, in sentences, what the costs take for granted.

    Args:
        prices: the table.
        costs: what was worked out from it.
        results: what it was worked out for.
    """
    kinds = {target.name: target.kind for target in results.targets}
    used = {kinds.get(cost.target, "server") for cost in costs}

    def money(amount: float) -> str:
        return units.money(amount, prices.currency)

    sentences = [
        f"{prices.name}, as of {prices.date}; no discounts, taxes, network traffic or people.",
        (
            f"The server has a machine of its own ({prices.machine}, {money(prices.machine_hour)} "
            "an hour), is as fast there as it was here, and is kept busy at the measured "
            "throughput the whole time: half as busy, the machine's share of each operation costs "
            "twice as much."
        ),
    ]
    if "file" in used:
        sentences.append(
            f"The file backend has a {prices.disk} of {units.grouped(prices.disk_gib)} GiB at "
            f"{money(prices.disk_gib_month)} for a GiB and month of {_HOURS_A_MONTH} hours."
        )
    if "gcs" in used:
        sentences.append(
            f"The bucket is {prices.bucket}: each key read is a class B operation "
            f"({money(prices.class_b)} for 1,000) and each change a class A operation "
            f"({money(prices.class_a)} for 1,000); removals are free. What the near cache answers "
            "and what is written together costs less; what a change reads first, and the space "
            "values take up, is not counted."
        )
    return sentences


def _cost(point: Point, kind: str, prices: Prices) -> Cost | None:
    throughput = point.throughput.mean
    if throughput <= 0:
        return None
    hours = _MILLION / throughput / 3600
    month = prices.disk_gib * prices.disk_gib_month
    reads, writes = _shares(point)
    in_bucket = kind == "gcs"
    return Cost(
        target=point.target,
        clients=point.clients,
        rate=point.rate,
        throughput=throughput,
        machine=hours * prices.machine_hour,
        disk=hours * month / _HOURS_A_MONTH if kind == "file" else 0.0,
        reads=reads * prices.class_b * _MILLION / 1000 if in_bucket else 0.0,
        writes=writes * prices.class_a * _MILLION / 1000 if in_bucket else 0.0,
    )


def _shares(point: Point) -> tuple[float, float]:
    """Return the shares of reads, and of changes other than removals, as they were measured."""
    operations = sum(one.operations for one in point.repetitions)
    reads = min(operations, sum(one.hits + one.misses for one in point.repetitions))
    removals = point.response["delete"].count if "delete" in point.response else 0
    return reads / operations, max(0, operations - reads - removals) / operations


def _default() -> str:
    return resources.files("memlite.loadtest").joinpath("prices.toml").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Reader:
    where: str
    table: Mapping[str, Any]

    def text(self, name: str) -> str:
        value = self._value(name)
        if not isinstance(value, str):
            raise ConfigError(f"{self.where}: {name} must be a text")
        return value

    def price(self, name: str) -> float:
        value = self._value(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            raise ConfigError(f"{self.where}: {name} must be a number, 0 or more")
        return float(value)

    def _value(self, name: str) -> Any:
        section, _, key = name.rpartition(".")
        table = self.table.get(section, {}) if section else self.table
        if not isinstance(table, dict):
            raise ConfigError(f"{self.where}: {section} must be a table: [{section}]")
        if key not in table:
            raise ConfigError(f"{self.where}: {name} is missing")
        return table[key]
