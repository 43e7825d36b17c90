"""Load levels."""

from dataclasses import dataclass

from memlite.loadtest.units import short

__all__ = ["Level"]


@dataclass(frozen=True, slots=True)
class Level:
    """A load level.

    Attributes:
        clients: number of concurrent connections.
        rate: for an open loop, operations per second; 0 for a closed loop.
        value_size: bytes of each value; 0 to use the workload's sizes.
    """

    clients: int
    rate: float = 0.0
    value_size: int = 0

    def __str__(self) -> str:
        text = f"{self.clients} clients" if self.clients != 1 else "1 client"
        if self.rate:
            text += f", {short(self.rate)}/s"
        return text + (f", {self.value_size} bytes" if self.value_size else "")
