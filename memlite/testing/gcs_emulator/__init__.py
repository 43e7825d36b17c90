"""A strict emulator of Google Cloud Storage, for testing the bucket backend and clients.

Requires the packages of ``pip install 'memlite-cache[gcs]'``. In asynchronous code::

    async with GcsEmulator(["my-bucket"]) as emulator:
        emulator.faults.set(lost_ack_rate=0.15)
        ...  # use a client with the endpoint emulator.url

In synchronous code: ``with emulator_thread(["my-bucket"]) as emulator:``.
"""

__all__ = [
    "Disk",
    "FaultPlan",
    "Faults",
    "Fixed",
    "GcsEmulator",
    "GcsError",
    "Lognormal",
    "Store",
    "Uniform",
    "emulator_process",
    "emulator_thread",
]

from memlite.testing.gcs_emulator.background import emulator_process, emulator_thread
from memlite.testing.gcs_emulator.disk import Disk
from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.faults import FaultPlan, Faults
from memlite.testing.gcs_emulator.latency import Fixed, Lognormal, Uniform
from memlite.testing.gcs_emulator.server import GcsEmulator
from memlite.testing.gcs_emulator.store import Store
