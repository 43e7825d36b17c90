"""The table of machines: their power and price."""

import difflib
import math
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from memlite.core.errors import ConfigError

__all__ = ["Machine", "MachineTable", "load", "ran_on"]

_HOURS_PER_YEAR: Final = 8766
_KEYS: Final = ("watts", "hour", "purchase", "years", "cores", "memory")


@dataclass(frozen=True, slots=True)
class Machine:
    """A type of machine.

    Attributes:
        name: its name.
        watts: power under full load; None if unknown.
        hour: price per hour; None if unknown.
        cores: number of cores dedicated to it at all times; None if unknown.
        memory: memory in GiB; None if unknown.
        rented: whether it is priced by the hour, rather than purchased.
    """

    name: str
    watts: float | None
    hour: float | None
    cores: float | None = None
    memory: float | None = None
    rented: bool = False


@dataclass(frozen=True, slots=True)
class MachineTable:
    """A table of machines.

    Attributes:
        where: the table's name in messages.
        currency: currency code of the prices.
        machines: the machines by name.
    """

    where: str
    currency: str
    machines: Mapping[str, Machine]

    def find(self, name: str) -> Machine:
        """Return the machine with this name.

        Raises:
            ConfigError: there is none; the message lists the available names.
        """
        if name in self.machines:
            return self.machines[name]
        close = difflib.get_close_matches(name, self.machines, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(
            f"bench: --machine: {self.where} has no {name!r}: {hint}it has "
            f"{', '.join(self.machines)}"
        )


def load(path: Path | None = None) -> MachineTable:
    """Load a table of machines.

    Args:
        path: a TOML file; None for the table that ships with memlite.

    Raises:
        ConfigError: the file cannot be read or is invalid.
    """
    where = "the table of machines" if path is None else str(path)
    try:
        text = _default_text() if path is None else path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"bench: --machines: {where} cannot be read: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not even UTF-8
        raise ConfigError(f"bench: --machines: {where} is not a TOML file: {error}") from None
    try:
        return _table(where, document)
    except ConfigError as error:
        raise ConfigError(f"bench: --machines: {where}: {error}") from None


def _table(where: str, document: Mapping[str, Any]) -> MachineTable:
    currency = document.get("currency", "USD")
    if not isinstance(currency, str):
        raise ConfigError("currency must be a string")
    energy = _number(document, "kilowatt-hour", "kilowatt-hour") or 0.0
    machines = {}
    for name, table in document.items():
        if name in ("currency", "kilowatt-hour"):
            continue
        if not isinstance(table, dict):
            raise ConfigError(f"unknown key {name}; a machine is a table, [{name}]")
        machines[name] = _machine(name, table, energy)
    return MachineTable(where, currency, machines)


def _machine(name: str, table: Mapping[str, Any], energy: float) -> Machine:
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"unknown key {name}.{key}; valid keys are {', '.join(_KEYS)}")
    watts, hour, purchase, years, cores, memory = (
        _number(table, key, f"{name}.{key}") for key in _KEYS
    )
    if (purchase is None) != (years is None):
        raise ConfigError(f"{name}: purchase and years must be given together")
    rented = hour is not None
    if purchase is not None and years is not None:
        if hour is not None:
            raise ConfigError(f"{name}: hour and purchase cannot be combined")
        if not years:
            raise ConfigError(f"{name}.years must be more than 0")
        hour = purchase / years / _HOURS_PER_YEAR + (watts or 0.0) / 1000 * energy
    return Machine(name, watts, hour, cores, memory, rented)


def _number(table: Mapping[str, Any], key: str, named: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:
        raise ConfigError(f"{named} must be a number, 0 or more")
    return float(value)


def _default_text() -> str:
    return resources.files("memlite.loadtest").joinpath("machines.toml").read_text(encoding="utf-8")


def ran_on(named: Mapping[str, int], hosts: Collection[str]) -> dict[str, int]:
    """Return the number of machines of each type on which a target ran.

    Args:
        named: the machines that the user named.
        hosts: the machines on which the target's processes ran, if other than the load tester's.
            If the user named only one type, the number of hosts is used: a cluster of one node
            does not use all machines.
    """
    if hosts and len(named) == 1:
        return dict.fromkeys(named, len(set(hosts)))
    return dict(named)
