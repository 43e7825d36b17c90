"""The design of an experiment: factors, runs in random order, and its file."""

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from memlite.core.errors import ConfigError
from memlite.lab.factorial_result import Levels
from memlite.loadtest.factorial.factors import Factor, given, parse_factors
from memlite.loadtest.files import write
from memlite.loadtest.options.hosts import without_access

__all__ = ["DESIGN_NAME", "Design", "Run", "design_of", "keep", "save_design"]

DESIGN_NAME: Final = "factorial.json"
_CLIENTS: Final = 16


@dataclass(frozen=True, slots=True)
class Run:
    """One of the runs of an experiment.

    Attributes:
        levels: the number of the level of each factor, from 0.
        number: the repetition's number, from 1.
    """

    levels: Levels
    number: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{'.'.join(map(str, self.levels))}-{self.number}"


@dataclass(frozen=True, slots=True)
class Design:
    """An experiment.

    Attributes:
        factors: the options that differ between its runs.
        common: the options of ``compare`` that are the same in all runs.
        repetitions: how many times each combination of levels is measured.
        seed: the seed of the first repetition, and of the order.
    """

    factors: tuple[Factor, ...]
    common: tuple[str, ...]
    repetitions: int
    seed: int

    @property
    def names(self) -> list[str]:
        """The names of the factors."""
        return [one.name for one in self.factors]

    @property
    def two_levels(self) -> bool:
        """Whether it is a 2^k·r design."""
        return all(len(one.levels) == 2 for one in self.factors)

    @property
    def combinations(self) -> list[Levels]:
        """All combinations of levels."""
        return list(itertools.product(*(range(len(one.levels)) for one in self.factors)))

    @property
    def runs(self) -> list[Run]:
        """All runs, in the order in which they are measured."""
        found = [
            Run(levels, number)
            for levels in self.combinations
            for number in range(1, self.repetitions + 1)
        ]
        random.Random(self.seed).shuffle(found)  # noqa: S311 - no secret
        return found

    def chosen(self, levels: Levels) -> list[str]:
        """Return the text of each factor's level."""
        return [one.levels[level] for one, level in zip(self.factors, levels, strict=True)]

    def arguments(self, run: Run) -> list[str]:
        """Return the command line of a run, which is one of ``compare``."""
        chosen = [one.argument(level) for one, level in zip(self.factors, run.levels, strict=True)]
        seed = f"--seed={self.seed + run.number - 1}"
        return ["compare", *self.common, *filter(None, chosen), "--repetitions=1", seed]

    def content(self) -> dict[str, Any]:
        """Return the content of its file, which defines what is measured."""
        return {
            "factors": [{"name": one.name, "levels": list(one.levels)} for one in self.factors],
            "options": without_access(self.common),
            "repetitions": self.repetitions,
            "seed": self.seed,
        }


def design_of(factors: Sequence[str], others: Sequence[str], repetitions: int, seed: int) -> Design:
    """Return the design that a command line describes.

    Args:
        factors: the values of all ``--factor`` options.
        others: options of ``compare`` that are the same in all runs.
        repetitions: how many times each combination is measured.
        seed: the seed of all randomness.

    Raises:
        ConfigError: a factor is invalid.
    """
    found = parse_factors(factors, others)
    keys = {*(one.key for one in found), *given(others)}
    names = {name for owner, name in keys if owner == "compare"}
    # One server, unless something else is asked for.
    target = [] if names & {"backends", "cluster"} else ["--backends", "memory"]
    if "target" in names and not names & {"backends", "cluster"}:
        target = ["--backends", ""]
    if "cluster" in names and "paths" not in names:
        target = ["--paths", "proxied"]
    clients = [] if "clients" in names else ["--clients", str(_CLIENTS)]
    return Design(tuple(found), (*target, *clients, *others), repetitions, seed)


def keep(path: Path, design: Design) -> None:
    """Save the design, or check that a saved one is the same.

    Raises:
        ConfigError: the saved design differs, or cannot be read.
    """
    try:
        before = json.loads(path.read_bytes())
    except FileNotFoundError:
        save_design(path, design.content())
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"bench: {path}: {error}") from None
    if not isinstance(before, dict) or {**before, **design.content()} != before:
        raise ConfigError(
            f"bench: --out {path.parent} contains the runs of another experiment; "
            "choose another folder"
        )


def save_design(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file of the experiment.

    Raises:
        ConfigError: it cannot be written.
    """
    write(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
