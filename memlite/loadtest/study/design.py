"""The measurements of a study: sweeps over numbers of clients, and a factorial experiment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memlite.core.errors import ConfigError
from memlite.loadtest.multigets.runs import Settings
from memlite.loadtest.study.common import parse_common

__all__ = ["FULL", "QUICK", "Scale", "Study", "Sweep", "study"]

_NODES: Final = 3
_VALUE_SIZE: Final = 1024
_PROXIES: Final = 2


@dataclass(frozen=True, slots=True)
class Scale:
    """The amount to measure.

    Attributes:
        clients: the numbers of clients of a sweep.
        in_flight: the limits of the proxies in front of one node; the experiment uses two of them.
        of_writes: the limits of the proxies for writes to the whole system.
        keys_per_get: the sizes of multi-gets.
        duration: the duration of a repetition, in seconds.
        warm_up: the warm-up before it, likewise.
        repetitions: the repetitions of each measurement except those of the experiment.
        of_experiment: the repetitions of the experiment.
        keys: the number of keys.
    """

    clients: tuple[int, ...]
    in_flight: tuple[int, ...]
    of_writes: tuple[int, ...]
    keys_per_get: tuple[int, ...]
    duration: float
    warm_up: float
    repetitions: int
    of_experiment: int
    keys: int


_LIMITS: Final = (8, 16, 32, 64)
# Few keys, as storing them takes as long as a measurement: it is done more than 50 times.
QUICK: Final = Scale((1, 4, 16, 64), (8, 64), _LIMITS, (1, 3, 6, 9), 0.5, 0.1, 3, 2, 2000)
FULL: Final = Scale(
    (1, 2, 4, 8, 16, 32, 64, 128),
    _LIMITS,
    _LIMITS,
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16),
    5.0,
    1.0,
    3,
    3,
    10_000,
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A run of ``compare`` over numbers of clients.

    Attributes:
        name: the name of its folder.
        section: the section of the report that it is for.
        workload: the workload's name.
        in_flight: the limit of the proxies; 0 for none.
        options: the options of ``compare`` specific to this sweep.
    """

    name: str
    section: str
    workload: str
    in_flight: int
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Study:
    """The measurements of a study.

    Attributes:
        scale: how much to measure.
        sweeps: in the order in which they are measured.
        factors: the factors of the experiment, as options.
        common: options of ``compare`` that are the same in all runs.
        multigets: the gets of several keys.
        seed: the seed of the order in which the experiment and the multi-gets are measured.
    """

    scale: Scale
    sweeps: tuple[Sweep, ...]
    factors: tuple[str, ...]
    common: tuple[str, ...]
    multigets: Settings
    seed: int

    def arguments(self, sweep: Sweep, clients: Sequence[int] = ()) -> list[str]:
        """Return the command line of a sweep, which is one of ``compare``.

        Args:
            sweep: one of the sweeps.
            clients: only these numbers; empty for all.
        """
        numbers = ",".join(map(str, clients or self.scale.clients))
        return ["compare", *sweep.options, f"--clients={numbers}", *self._measuring, *self.common]

    @property
    def commands(self) -> list[list[str]]:
        """The command lines that make the same measurements; each can be run alone.

        Multi-gets are included if their nodes are configured as that command starts them.
        """
        factors = [f"--factor={one}" for one in self.factors]
        scale = self.scale
        seed = f"--seed={self.seed}"
        found = [self.arguments(sweep) for sweep in self.sweeps]
        often = f"--repetitions={scale.of_experiment}"
        found.append(["factorial", *factors, *self.of_experiment, often, seed])
        gets = self.multigets
        if gets.backend == "memory" and not gets.options:
            found.append(
                [
                    "multigets",
                    f"--sizes={','.join(map(str, gets.sizes))}",
                    f"--nodes={gets.nodes}",
                    f"--clients={gets.clients}",
                    f"--keys={gets.keys}",
                    f"--value-size={gets.value_size}",
                    f"--duration={gets.duration:g}s",
                    f"--repetitions={scale.repetitions}",
                    seed,
                ]
            )
        return found

    @property
    def of_experiment(self) -> list[str]:
        """The options of ``compare`` that are the same in all runs of the experiment."""
        scale = self.scale
        clients = f"--clients={max(scale.clients)}"
        return [clients, *_times(scale), *self.common]

    @property
    def _measuring(self) -> list[str]:
        return [*_times(self.scale), f"--repetitions={self.scale.repetitions}"]


def study(scale: Scale, backend: str, others: Sequence[str], seed: int) -> Study:
    """Return the measurements of a study.

    Args:
        scale: how much to measure.
        backend: the backend of the nodes.
        others: options of ``compare`` for all its runs.
        seed: the seed of the order in which the experiment and the multi-gets are measured.

    Raises:
        ConfigError: the scale leaves nothing to compare, or an option cannot be used in a study.
    """
    scale = replace(
        scale,
        clients=tuple(sorted(scale.clients)),
        in_flight=tuple(sorted(scale.in_flight)),
        of_writes=tuple(sorted(scale.of_writes)),
    )
    middle = scale.clients[len(scale.clients) // 2]
    if len(scale.clients) < 3:
        raise ConfigError("bench: --clients: a study requires at least three numbers of clients")
    if middle < _NODES:
        raise ConfigError(
            f"bench: --clients: at least half of the numbers must be {_NODES} or more"
        )
    if len(scale.in_flight) < 2:
        raise ConfigError("bench: --in-flight: a study requires at least two limits")
    low, high = scale.in_flight[0], scale.in_flight[:3][-1]
    common = parse_common(backend, others)
    keys = getattr(common, "keys.count")
    if keys is None:
        others = [f"--keys={scale.keys}", *others]
    return Study(
        scale,
        tuple(_sweeps(scale)),
        (
            f"servers=1,{_NODES}",
            f"proxies=1,{_PROXIES}",
            f"in-flight={low},{high}",
            "workload=write-only,read-only",
        ),
        (f"--backends={backend}", *others),
        Settings(
            scale.keys_per_get,
            _NODES,
            middle,
            keys or scale.keys,
            common.value_size[0] if common.value_size else _VALUE_SIZE,
            scale.duration,
            scale.repetitions,
            seed,
            backend,
            tuple(common.server_option),
        ),
        seed,
    )


def _sweeps(scale: Scale) -> Iterator[Sweep]:
    for workload in ("read-only", "write-only", "mixed"):
        yield Sweep(
            f"direct-{workload}",
            "direct",
            workload,
            0,
            ("--cluster=1,2", "--paths=direct", f"--workload={workload}"),
        )
    for workload in ("read-only", "write-only"):
        for limit in scale.in_flight:
            yield Sweep(
                f"proxied-{workload}-{limit}",
                "proxied",
                workload,
                limit,
                (
                    "--cluster=1",
                    f"--proxies=1,{_PROXIES}",
                    f"--in-flight={limit}",
                    f"--workload={workload}",
                ),
            )
    for limit in scale.of_writes:
        yield Sweep(
            f"writes-{limit}",
            "writes",
            "write-only",
            limit,
            (
                f"--cluster={_NODES}",
                f"--proxies={_PROXIES}",
                f"--in-flight={limit}",
                f"--proxy-option=replicas={_NODES}",
                "--workload=write-only",
            ),
        )
    yield Sweep(
        "whole-mixed",
        "whole",
        "mixed",
        0,
        (f"--cluster={_NODES}", "--proxies=1", "--paths=proxied", "--workload=mixed"),
    )


def _times(scale: Scale) -> list[str]:
    return [f"--duration={scale.duration:g}s", f"--warm-up={scale.warm_up:g}s"]
