"""Resources used during a measurement, by its own processes and by everything else."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, Self, TypeAlias

import psutil

from memlite.loadtest.results import MachineUse, ServerUse

__all__ = ["Counted", "Counters", "Elsewhere", "MachineTimes", "Reading", "RemoteProcess"]

# Processor times have a resolution of 10 ms per process. In a shorter measurement, shares of the
# machine would be mostly rounding errors.
_SHORTEST: float = 0.5


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """A machine's processor time so far, in seconds over all cores.

    Attributes:
        total: time of all kinds.
        busy: time used by programs.
        steal: time taken by the hypervisor.
    """

    total: float
    busy: float
    steal: float

    @classmethod
    def read(cls) -> Self:
        """Read the times of this machine."""
        times = psutil.cpu_times()._asdict()
        # Linux also counts guest time in `user` and `nice`.
        total = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))
        # Interrupts, such as those of the measured traffic, belong to no process.
        busy = times["user"] + times.get("nice", 0.0) + times["system"]
        return cls(total, busy, times.get("steal", 0.0))


@dataclass(frozen=True, slots=True)
class Counters:
    """Resources that a process has used so far.

    Attributes:
        seconds: processor time, in seconds.
        memory: resident memory, in bytes.
        threads: the processor time of each thread, in seconds.
    """

    seconds: float
    memory: int
    threads: Mapping[int, float]

    @classmethod
    def read(cls, process: psutil.Process) -> Self | None:
        """Read the counters of a process on this machine; None if it has ended."""
        try:
            with process.oneshot():
                return cls(
                    _seconds(process),
                    process.memory_info().rss,
                    {one.id: one.user_time + one.system_time for one in process.threads()},
                )
        except psutil.Error:
            return None


class Elsewhere(Protocol):
    """Another machine that reports the resources used by its processes."""

    def counters(self, pids: Sequence[int]) -> tuple[MachineTimes, Mapping[int, Counters]]:
        """Return the machine's times, and the counters of the given processes that are running.

        Raises:
            StartError: the machine does not answer.
        """


@dataclass(frozen=True, slots=True)
class RemoteProcess:
    """A process on another machine.

    Attributes:
        machine: the machine.
        pid: process ID on that machine.
    """

    machine: Elsewhere
    pid: int


Counted: TypeAlias = psutil.Process | RemoteProcess
"""A process whose CPU use can be read."""


def _use(
    before: Sequence[Counters | None], after: Sequence[Counters | None], seconds: float
) -> ServerUse | None:
    """Return the resources that processes used; None if there are none, or one has ended."""
    pairs = [
        (one, other)
        for one, other in zip(before, after, strict=True)
        if one is not None and other is not None
    ]
    if not pairs or len(pairs) < len(after):
        return None
    used = sum(other.seconds - one.seconds for one, other in pairs)
    busiest = max(
        (
            time - one.threads.get(thread, 0.0)
            for one, other in pairs
            for thread, time in other.threads.items()
        ),
        default=used,
    )
    return ServerUse(
        cpu_seconds=round(used, 3),
        cpu_share=round(used / seconds, 4),
        memory_bytes=sum(other.memory for _, other in pairs),
        thread_share=round(busiest / seconds, 4),
    )


@dataclass(frozen=True, slots=True)
class _OfMachine:
    """The times of a machine, and the processor time used by the measurement itself."""

    times: MachineTimes
    own: float

    def use(self, before: Self) -> MachineUse | None:
        total = self.times.total - before.times.total
        if total <= 0:
            return None
        other = self.times.busy - before.times.busy - (self.own - before.own)
        steal = self.times.steal - before.times.steal
        return MachineUse(round(max(0.0, other) / total, 4), round(max(0.0, steal) / total, 4))


class Reading:
    """Counters at one moment; the use between two moments is the difference of their readings.

    Args:
        server: processes of the server whose counters can be read.
        others: other processes on this machine that take part in the measurement.
        named: processes of the server whose use is reported individually, by name.

    Raises:
        StartError: another machine does not answer.
    """

    def __init__(
        self,
        server: Sequence[Counted],
        others: Iterable[psutil.Process] = (),
        named: Mapping[str, Counted] = MappingProxyType({}),
    ) -> None:
        times = MachineTimes.read()
        found, self._machines = _elsewhere([*server, *named.values()])
        for one in (*server, *named.values()):
            if isinstance(one, psutil.Process):
                found[one] = Counters.read(one)
        self._server = [found[one] for one in server]
        self._named = {name: found[one] for name, one in named.items()}
        here = (found[one] for one in server if isinstance(one, psutil.Process))
        own = sum(one.seconds for one in here if one is not None) + sum(map(_seconds, others))
        self._machines.insert(0, _OfMachine(times, own))

    def server_use(self, before: Self, seconds: float) -> ServerUse | None:
        """Return the resources that the server used since an earlier reading; None if unknown.

        Args:
            before: the earlier reading.
            seconds: the time between the two.
        """
        return _use(before._server, self._server, seconds)

    def uses(self, before: Self, seconds: float) -> dict[str, ServerUse]:
        """Return the resources that each named process used since an earlier reading, if known.

        Args:
            before: the earlier reading.
            seconds: the time between the two.
        """
        found = {
            name: _use([before._named[name]], [counters], seconds)
            for name, counters in self._named.items()
        }
        return {name: use for name, use in found.items() if use is not None}

    def machine_use(self, before: Self, seconds: float) -> MachineUse | None:
        """Return the other load since an earlier reading; None if unknown.

        With several machines, return that of the machine with the most other load.

        Args:
            before: the earlier reading.
            seconds: the time between the two.
        """
        if seconds < _SHORTEST:
            return None
        uses = [
            after.use(earlier)
            for earlier, after in zip(before._machines, self._machines, strict=True)
        ]
        known = [use for use in uses if use is not None]
        return max(known, key=lambda use: use.other + use.steal, default=None)


def _elsewhere(
    processes: Iterable[Counted],
) -> tuple[dict[Counted, Counters | None], list[_OfMachine]]:
    """Query each other machine once, for all of its processes."""
    asked: dict[Elsewhere, dict[int, RemoteProcess]] = {}
    for one in processes:
        if isinstance(one, RemoteProcess):
            asked.setdefault(one.machine, {})[one.pid] = one
    found: dict[Counted, Counters | None] = {}
    machines = []
    for machine, by_pid in asked.items():
        times, counters = machine.counters(list(by_pid))
        found |= {one: counters.get(pid) for pid, one in by_pid.items()}
        machines.append(_OfMachine(times, sum(one.seconds for one in counters.values())))
    return found, machines


def _seconds(process: psutil.Process) -> float:
    """Return the processor seconds of a process; 0 if it has ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
