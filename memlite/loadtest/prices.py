"""Estimate the cost of a million operations from measured throughput and a price table.

::

    machine = price per hour / operations per hour × 1,000,000
    disk    = price per GiB and month × GiB / 730 hours / operations per hour × 1,000,000
    store   = price per hour of the store's machine / operations per hour × 1,000,000
    reads   = share of reads × price of a class B operation × 1,000,000
    writes  = share of writes × price of a class A operation × 1,000,000

A cluster has a machine for each node and one for each proxy.
``memory`` and other servers incur the cost of the machine; ``file`` of the machine and the disk;
``valkey`` of the machine and the store; ``redis-direct`` of the store alone; and ``gcs`` of the
machine, reads and writes.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from memlite.core.errors import ConfigError
from memlite.loadtest import selection, units
from memlite.loadtest.defaults import WITH_PROXY
from memlite.loadtest.resp import DIRECT
from memlite.loadtest.results import Point, Results, TargetInfo

__all__ = ["Cost", "Prices", "assumptions", "costs", "load"]

_MILLION = 1_000_000
_HOURS_PER_MONTH = 730
_WITH_STORE = {"valkey", DIRECT}


@dataclass(frozen=True, slots=True)
class Prices:
    """A price table.

    Attributes:
        name: the provider and region.
        date: the date of the prices.
        currency: the currency's code.
        machine: the machine type.
        machine_hour: price of the machine per hour.
        disk: the disk type.
        disk_gib: size of the disk in GiB.
        disk_gib_month: price of the disk per GiB and month.
        bucket: the bucket's storage class.
        class_a: price of 1,000 class A (write) operations.
        class_b: price of 1,000 class B (read) operations.
        store: the machine type of a Valkey or Redis server; empty for the same type as `machine`.
        store_hour: price of the store's machine per hour; None for `machine_hour`.
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
    store: str = ""
    store_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a million operations on a target, in the currency of the price table.

    Attributes:
        target: the target's name.
        clients: number of clients at the load the estimate is based on.
        rate: for an open loop, operations per second at that load; 0 for a closed loop.
        throughput: throughput at that load, in operations per second.
        machine: cost of the machine; 0 if there is no memlite server.
        disk: cost of the disk; 0 if there is none.
        reads: cost of class B operations; 0 without a bucket.
        writes: cost of class A operations; 0 without a bucket.
        store: cost of the machine of a Valkey or Redis server; 0 without one.
    """

    target: str
    clients: int
    rate: float
    throughput: float
    machine: float
    disk: float = 0.0
    reads: float = 0.0
    writes: float = 0.0
    store: float = 0.0

    @property
    def total(self) -> float:
        """The total cost."""
        return self.machine + self.disk + self.store + self.reads + self.writes


def load(path: Path | None = None) -> Prices:
    """Load a price table.

    Args:
        path: a TOML file; None for the table that ships with memlite.

    Raises:
        ConfigError: the file cannot be read, or a price is missing or invalid.
    """
    where = "prices" if path is None else str(path)
    try:
        text = _default_text() if path is None else path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not even UTF-8
        raise ConfigError(f"{where} is not a TOML file: {error}") from None
    reader = _TableReader(where, table)
    has_store = "store" in table  # older tables have none
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
        store=reader.text("store.name") if has_store else "",
        store_hour=reader.price("store.hour") if has_store else None,
    )


def costs(results: Results, prices: Prices) -> list[Cost]:
    """Return the cost of a million operations for each target, at its highest throughput.

    Args:
        results: the measurements; targets without a single successful operation are left out.
        prices: the price table.
    """
    targets = {target.name: target for target in results.targets}
    points = selection.closed_loop(results) or selection.open_loop(results)
    groups = selection.by_target(results, selection.with_main_value_size(points))
    found = (
        _cost(selection.highest_throughput(of_one), targets.get(name), prices)
        for name, of_one in groups.items()
    )
    return [cost for cost in found if cost is not None]


def assumptions(prices: Prices, costs: Sequence[Cost], results: Results) -> list[str]:
    """Return the assumptions behind the costs, as sentences.

    Args:
        prices: the price table.
        costs: the costs calculated from it.
        results: the measurements that the costs are based on.
    """
    kinds = {target.name: target.kind for target in results.targets}
    used = {kinds.get(cost.target, "server") for cost in costs}

    def money(amount: float) -> str:
        return units.money(amount, prices.currency)

    sentences = [
        (
            f"{prices.name}, as of {prices.date}; excluding discounts, taxes, network traffic and "
            "staff."
        ),
        (
            f"The server has its own machine ({prices.machine}, {money(prices.machine_hour)} "
            "per hour), is as fast there as it was here, and runs at the measured throughput all "
            "the time: at half the utilisation, the machine's share of each operation's cost "
            "doubles."
        ),
    ]
    if "cluster" in used:
        sentences.append(
            "Each node of a cluster has its own machine, as does each proxy. Here they shared "
            "one, so a cluster of that many machines may be much faster, and cheaper for each "
            "operation."
        )
    if "file" in used:
        sentences.append(
            f"The file backend has a {prices.disk} of {units.grouped(prices.disk_gib)} GiB at "
            f"{money(prices.disk_gib_month)} per GiB and month ({_HOURS_PER_MONTH} hours)."
        )
    if used & _WITH_STORE:
        sentences.append(
            f"Valkey or Redis has its own machine ({prices.store or prices.machine}, "
            f"{money(_store_hour(prices))} per hour), which serves this load alone and has no "
            "replica. Here it shared the server's machine, which makes memlite in front of it "
            "slower; and a store has room for several memlite servers."
        )
    if "gcs" in used:
        sentences.append(
            f"The bucket is {prices.bucket}: each key read is a class B operation "
            f"({money(prices.class_b)} per 1,000) and each write a class A operation "
            f"({money(prices.class_a)} per 1,000), as is each deletion. Reads answered by the "
            "near cache and combined writes cost less; the reads that precede some writes, and "
            "the storage for the values, are not included."
        )
    return sentences


def _cost(point: Point, target: TargetInfo | None, prices: Prices) -> Cost | None:
    throughput = point.throughput.mean
    if throughput <= 0:
        return None
    kind = target.kind if target is not None else "server"
    cluster = target.cluster if target is not None else None
    machines = (
        1 if cluster is None else cluster.nodes + cluster.proxies * (cluster.path in WITH_PROXY)
    )
    hours = _MILLION / throughput / 3600
    month = prices.disk_gib * prices.disk_gib_month
    reads, writes = _shares(point)
    in_bucket = kind == "gcs"
    return Cost(
        target=point.target,
        clients=point.clients,
        rate=point.rate,
        throughput=throughput,
        machine=0.0 if kind == DIRECT else hours * prices.machine_hour * machines,
        disk=hours * month / _HOURS_PER_MONTH if kind == "file" else 0.0,
        reads=reads * prices.class_b * _MILLION / 1000 if in_bucket else 0.0,
        writes=writes * prices.class_a * _MILLION / 1000 if in_bucket else 0.0,
        store=hours * _store_hour(prices) if kind in _WITH_STORE else 0.0,
    )


def _store_hour(prices: Prices) -> float:
    return prices.machine_hour if prices.store_hour is None else prices.store_hour


def _shares(point: Point) -> tuple[float, float]:
    """Return the measured shares of reads and of writes."""
    operations = sum(one.operations for one in point.repetitions)
    reads = min(operations, sum(one.hits + one.misses for one in point.repetitions))
    return reads / operations, (operations - reads) / operations


def _default_text() -> str:
    return resources.files("memlite.loadtest").joinpath("prices.toml").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _TableReader:
    """Reads typed values from a TOML table; `where` names the file in error messages."""

    where: str
    table: Mapping[str, Any]

    def text(self, name: str) -> str:
        value = self._value(name)
        if not isinstance(value, str):
            raise ConfigError(f"{self.where}: {name} must be a string")
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
