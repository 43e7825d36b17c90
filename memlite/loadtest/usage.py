"""What a measurement used of the machine: its own processes, and everything else."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import psutil

from memlite.loadtest.results import MachineUse, ServerUse

__all__ = ["Reading"]

# Processor times have a resolution of 10 ms for each process. In a shorter measurement, shares of
# the machine would be mostly rounding.
_SHORTEST: float = 0.5


@dataclass(frozen=True, slots=True)
class _Machine:
    """The machine's processor time so far, in seconds over all cores."""

    total: float
    busy: float
    steal: float

    @classmethod
    def read(cls) -> Self:
        times = psutil.cpu_times()._asdict()
        # Linux counts the time of guests in `user` and `nice` too.
        total = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))
        # Interrupts, such as those of the measured traffic, belong to no process.
        busy = times["user"] + times.get("nice", 0.0) + times["system"]
        return cls(total, busy, times.get("steal", 0.0))


class _Processes:
    """The counters of a server's processes.

    Attributes:
        seconds: their processor time so far; None if there are none, or one has ended.
    """

    def __init__(self, processes: Iterable[psutil.Process]) -> None:
        self._threads: dict[int, float] = {}
        self._memory = 0
        self.seconds: float | None = None
        try:
            for process in processes:
                self._read(process)
        except psutil.Error:
            self.seconds = None

    def _read(self, process: psutil.Process) -> None:
        with process.oneshot():
            self.seconds = (self.seconds or 0.0) + _seconds(process)
            self._memory += process.memory_info().rss
            for thread in process.threads():
                self._threads[thread.id] = thread.user_time + thread.system_time

    def use(self, before: Self, seconds: float) -> ServerUse | None:
        if self.seconds is None or before.seconds is None:
            return None
        used = self.seconds - before.seconds
        busiest = max(
            (time - before._threads.get(thread, 0.0) for thread, time in self._threads.items()),
            default=used,
        )
        return ServerUse(
            cpu_seconds=round(used, 3),
            cpu_share=round(used / seconds, 4),
            memory_bytes=self._memory,
            thread_share=round(busiest / seconds, 4),
        )


class Reading:
    """Counters at one moment; the use between two moments is what they differ by.

    Args:
        server: the processes of a local server; none for a remote one.
        others: the other processes that take part in the measurement.
        named: those of the server's processes whose use is wanted for each, by name.
    """

    def __init__(
        self,
        server: Sequence[psutil.Process],
        others: Iterable[psutil.Process] = (),
        named: Mapping[str, psutil.Process] = MappingProxyType({}),
    ) -> None:
        self._machine = _Machine.read()
        self._server = _Processes(server)
        self._named = {name: _Processes([process]) for name, process in named.items()}
        self._own = (self._server.seconds or 0.0) + sum(map(_seconds, others))

    def server_use(self, before: Self, seconds: float) -> ServerUse | None:
        """Return what the server used since an earlier reading; None if that is unknown.

        Args:
            before: the earlier reading.
            seconds: the time between the two.
        """
        return self._server.use(before._server, seconds)

    def uses(self, before: Self, seconds: float) -> dict[str, ServerUse]:
        """Return what each of the named processes used, as far as that is known.

        Args:
            before: the earlier reading.
            seconds: the time between the two.
        """
        found = {
            name: processes.use(before._named[name], seconds)
            for name, processes in self._named.items()
        }
        return {name: use for name, use in found.items() if use is not None}

    def machine_use(self, before: Self, seconds: float) -> MachineUse | None:
        """Return what others used since an earlier reading; None if that is unknown.

        Args:
            before: the earlier reading.
            seconds: the time between the two.
        """
        total = self._machine.total - before._machine.total
        if seconds < _SHORTEST or total <= 0:
            return None
        other = self._machine.busy - before._machine.busy - (self._own - before._own)
        steal = self._machine.steal - before._machine.steal
        return MachineUse(round(max(0.0, other) / total, 4), round(max(0.0, steal) / total, 4))


def _seconds(process: psutil.Process) -> float:
    """Return the processor seconds of a process; 0 if it has ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
