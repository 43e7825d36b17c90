"""How many machines of a type the servers of a plan need, and what they cost."""

import math
from dataclasses import dataclass
from typing import Final

from memlite.loadtest.capacity.estimate import Estimate, Range
from memlite.loadtest.capacity.request import Request
from memlite.loadtest.machines import Machine, MachineTable
from memlite.loadtest.prices import Prices

__all__ = ["HOURS_PER_MONTH", "Machines", "cheapest", "extra_costs", "needed"]

HOURS_PER_MONTH: Final = 730
_SECONDS_PER_MONTH: Final = HOURS_PER_MONTH * 3600
_GIB: Final = 1 << 30
# Memory that an item takes besides its value, in bytes, for a short key and the bookkeeping: at
# least memcached's, at most memlite's (scripts/benchmarks/bench_memory.py).
_ITEM: Final = Range(70, 320)
# The share of a machine's memory that is for items.
_FOR_ITEMS: Final = 0.8
_IN_MEMORY: Final = ("memory", "file", "cluster", "server")


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines of a type.

    Attributes:
        machine: the type.
        count: the number of machines.
        month: their price for a month of 730 hours, in the currency of the table.
        memory: whether memory, and not processors, determines the count.
    """

    machine: Machine
    count: Range
    month: Range
    memory: bool


def needed(estimate: Estimate, request: Request, machine: Machine) -> Machines | None:
    """Return how many machines of a type are needed; None if its cores or price are unknown.

    Also None if the server's processor time is unknown. One core is left to the kernel and the
    network, so machines with a single core, or part of one, are not considered.
    """
    known = estimate.measured
    if machine.hour is None or machine.cores is None or not known.parts:
        return None
    room = int(machine.cores) - 1
    workers = max(part.workers for part in known.parts)
    if room < workers:
        return None
    # Servers with separate files would share the disk of their machine.
    each = 1 if known.kind == "file" else room // workers
    of_servers = [
        math.ceil(servers / each) for servers in (estimate.servers.low, estimate.servers.high)
    ]
    of_memory = [0, 0]
    if request.keys and known.kind in _IN_MEMORY:
        if machine.memory is None:
            return None
        value = known.saturated.value_size
        size = request.value_size if request.value_size is not None else value
        usable = machine.memory * _GIB * _FOR_ITEMS
        of_memory = [
            math.ceil(request.keys * (size + item) / usable) for item in (_ITEM.low, _ITEM.high)
        ]
    proxies = [
        math.ceil(proxies / room) for proxies in (estimate.proxies.low, estimate.proxies.high)
    ]
    low, high = (
        max(servers, memory) + proxy
        for servers, memory, proxy in zip(of_servers, of_memory, proxies, strict=True)
    )
    month = machine.hour * HOURS_PER_MONTH
    return Machines(
        machine, Range(low, high), Range(low * month, high * month), of_memory[1] > of_servers[1]
    )


def cheapest(estimate: Estimate, request: Request, table: MachineTable) -> Machines | None:
    """Return the machines with the lowest maximum cost; None if no type in the table is usable."""
    found = [needed(estimate, request, machine) for machine in table.machines.values()]
    return min(
        (one for one in found if one is not None),
        key=lambda one: (one.month.high, one.month.low),
        default=None,
    )


def extra_costs(estimate: Estimate, request: Request, prices: Prices, machines: Range) -> Range:
    """Return the monthly costs besides machines: disks, and the bucket's use."""
    kind = estimate.measured.kind
    if kind == "file":
        disk = prices.disk_gib * prices.disk_gib_month
        return Range(machines.low * disk, machines.high * disk)
    if kind != "gcs":
        return Range(0, 0)
    repetitions = [one for point in estimate.measured.points for one in point.repetitions]
    operations = sum(one.operations for one in repetitions)
    reads = min(1.0, sum(one.hits + one.misses for one in repetitions) / operations)
    month = request.rate * _SECONDS_PER_MONTH
    cost = month * (reads * prices.class_b + (1 - reads) * prices.class_a) / 1000
    return Range(cost, cost)
