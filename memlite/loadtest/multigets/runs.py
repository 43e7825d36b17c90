"""Measurements of multi-gets, and how they are saved."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from memlite.core.errors import ConfigError
from memlite.loadtest import files
from memlite.loadtest.models.traces import Period, read_pieces
from memlite.loadtest.results import Latency, Repetition
from memlite.loadtest.server_options import Given
from memlite.loadtest.statistics import HIGHEST, latency, new_histogram

__all__ = ["NAME", "Run", "Settings", "load_runs", "run_of", "save_runs", "with_proxy"]

NAME: Final = "multigets.json"
_FORMAT: Final = "memlite-multigets"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings shared by all measurements.

    Attributes:
        sizes: numbers of keys.
        nodes: the number of nodes, and of processes that generate the load.
        clients: the number of clients, over all processes.
        keys: the number of keys of each process.
        value_size: in bytes.
        duration: the duration of a measurement, in seconds.
        repetitions: the repetitions of each size, sharded and not.
        seed: the seed of all randomness, including the order.
        backend: the nodes' backend: ``memory``, ``file`` or ``memcached``.
        options: further options of the nodes.
    """

    sizes: tuple[int, ...]
    nodes: int
    clients: int
    keys: int
    value_size: int
    duration: float
    repetitions: int
    seed: int
    backend: str = "memory"
    options: tuple[Given, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement.

    Attributes:
        size: keys per get.
        sharded: whether its keys are spread over the nodes; otherwise they are all on one.
        number: the repetition's number, from 1.
        started: unix time.
        seconds: its length.
        requests: gets per second.
        misses: keys that were not found.
        errors: failed requests.
        generator_share: CPU utilisation of the busiest process that generated the load.
        other: the share of the machine's processors that other programs used; None if unknown.
        client: response times at the clients, in microseconds.
        proxy: times from arrival to reply at the proxy, of the requests it traced; None until they
            have been read.
    """

    size: int
    sharded: bool
    number: int
    started: float
    seconds: float
    requests: float
    misses: int
    errors: int
    generator_share: float
    other: float | None
    client: Latency
    proxy: Latency | None = None

    @property
    def key(self) -> tuple[int, bool, int]:
        """The key that identifies a measurement."""
        return self.size, self.sharded, self.number


def run_of(size: int, found: Repetition, *, sharded: bool) -> Run:
    """Return the run that a measurement yields.

    Raises:
        ConfigError: no request has succeeded.
    """
    client = found.response.get("get", Latency())
    if not client.count:
        kinds = ", ".join(found.errors) or "no reply"
        raise ConfigError(f"bench: multigets: no get of {size} keys succeeded ({kinds})")
    return Run(
        size,
        sharded,
        found.number,
        found.started,
        found.seconds,
        client.count / found.seconds,
        found.misses,
        found.failed,
        found.generator_share,
        None if found.machine is None else found.machine.other + found.machine.steal,
        client,
    )


def with_proxy(runs: Sequence[Run], trace: Path) -> list[Run]:
    """Return the runs with their times from a proxy's trace.

    Args:
        runs: the runs, some of which may have them already.
        trace: the file.

    Raises:
        ConfigError: the file cannot be read, or is not a trace.
    """
    missing = sorted((run for run in runs if run.proxy is None), key=lambda run: run.started)
    periods: list[Period] = [(run.started, run.started + run.seconds) for run in missing]
    found = dict(zip((run.key for run in missing), _times(trace, periods), strict=True))
    return [dataclasses.replace(run, proxy=found.get(run.key, run.proxy)) for run in runs]


def _times(trace: Path, periods: Sequence[Period]) -> list[Latency]:
    """Return the times from arrival to reply in ordered periods that do not overlap."""
    histograms = [new_histogram() for _ in periods]
    if not periods:
        return []
    begins = np.array([begin for begin, _ in periods])
    ends = np.array([end for _, end in periods])
    for piece in read_pieces(trace):
        arrival = piece.times["arrival"]
        taken = piece.times["replied"] - arrival
        number = np.searchsorted(begins, arrival * 1e-6, side="right") - 1
        inside = (number >= 0) & (arrival * 1e-6 < ends[np.maximum(number, 0)]) & ~np.isnan(taken)
        for index in np.unique(number[inside]):
            values, counts = np.unique(taken[inside & (number == index)], return_counts=True)
            for value, count in zip(values.tolist(), counts.tolist(), strict=True):
                histograms[index].record_value(min(max(int(value), 1), HIGHEST), count)
    return [latency(one) for one in histograms]


def save_runs(settings: Settings, runs: Sequence[Run], folder: Path) -> None:
    """Save the measured runs.

    Raises:
        ConfigError: the file cannot be written.
    """
    document = {"format": _FORMAT, "settings": settings, "runs": runs}
    files.write(folder / NAME, orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def load_runs(settings: Settings, folder: Path) -> list[Run]:
    """Load the runs measured with these settings.

    Returns:
        The runs; empty if nothing has been measured yet.

    Raises:
        ConfigError: the file cannot be read, or was made with other settings.
    """
    path = folder / NAME
    try:
        document = orjson.loads(path.read_bytes())
        before, runs = document["settings"], [_run(one) for one in document["runs"]]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a multi-gets file: {error}") from None
    if before != orjson.loads(orjson.dumps(settings)):
        raise ConfigError(
            f"bench: --out {folder} contains measurements with other options; choose another folder"
        )
    return runs


def _run(members: Mapping[str, Any]) -> Run:
    proxy = members["proxy"]
    return Run(
        **{
            **members,
            "client": Latency(**members["client"]),
            "proxy": None if proxy is None else Latency(**proxy),
        }
    )
