"""What clients do: operations, keys, values, and the pace."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["LARGEST_VALUE", "OPERATIONS", "Keys", "Load", "Values", "Workload"]

LARGEST_VALUE = 128 * 1024 * 1024
"""Bytes of the largest value a workload may store."""

OPERATIONS = (
    "get",
    "gets",
    "set",
    "add",
    "replace",
    "append",
    "prepend",
    "cas",
    "delete",
    "incr",
    "decr",
    "touch",
    "insert",
    "scan",
    "rmw",
)
"""What a mix may be made of.

The protocol's commands; and those of YCSB: ``insert`` sets a key that was not there before,
``scan`` gets up to 100 keys that follow each other, ``rmw`` gets a key and then sets it. Before
``cas`` the key's unique is asked for with gets.
"""


@dataclass(frozen=True, slots=True)
class Keys:
    """Which keys are asked for.

    Attributes:
        count: how many there are.
        distribution: ``uniform``, ``zipfian``, ``latest`` (zipfian, from the newest on),
            ``hotspot`` or ``sequential``.
        theta: of zipfian and latest; 0.99 as in YCSB.
        hot_fraction: of hotspot, the share of the keys that is hot.
        hot_share: of hotspot, the share of operations that goes there.
        prefix: what keys begin with; a number follows.
    """

    count: int = 10_000
    distribution: str = "uniform"
    theta: float = 0.99
    hot_fraction: float = 0.2
    hot_share: float = 0.8
    prefix: str = "key-"


@dataclass(frozen=True, slots=True)
class Values:
    """How large values are, in bytes.

    Attributes:
        distribution: ``fixed``, ``uniform``, ``lognormal`` or ``file``.
        size: fixed: each; lognormal: the median.
        least: uniform: the smallest; lognormal: what smaller ones are raised to.
        most: uniform: the largest; lognormal: what larger ones are cut to.
        sigma: lognormal: of the logarithm.
        file: a text file with a size in each line; each is as likely as the others.
    """

    distribution: str = "fixed"
    size: int = 100
    least: int = 1
    most: int = 1_000_000
    sigma: float = 1.0
    file: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """How clients put it on.

    Attributes:
        pipeline: requests a connection may have under way.
        multiget: keys of a get, 1 to 100; each counts as an operation.
        noreply: whether changes are sent with ``noreply``.
        rate: operations a second of all clients together, in open loop; 0 for closed loop.
        arrivals: of the open loop, ``constant`` or ``poisson``.
        think_time: seconds a client pauses between a reply and its next request.
        operations: how many all clients together make in a repetition; 0 for as many as `duration`
            allows.
        duration: seconds of a repetition, where `operations` is 0.
        warm_up: seconds before each repetition that are not measured.
        repetitions: how many.
    """

    pipeline: int = 1
    multiget: int = 1
    noreply: bool = False
    rate: float = 0.0
    arrivals: str = "constant"
    think_time: float = 0.0
    operations: int = 0
    duration: float = 1.0
    warm_up: float = 0.25
    repetitions: int = 3


@dataclass(frozen=True, slots=True)
class Workload:
    """What clients do.

    Attributes:
        name: the preset's, or the file's.
        description: a line.
        kind: ``steady``: clients stay connected and carry out the mix; ``concurrent``: so many new
            clients at once each connect, set a key of their own, get it and leave.
        mix: the share of each of `OPERATIONS`, in any unit.
        keys: which keys.
        values: how large values are.
        ttl: exptime of what is stored, in seconds; 0 for none.
        preload: whether all keys are stored before the measurement.
        trace: a CSV file to replay instead of the mix.
        load: how it is put on.
    """

    name: str = "custom"
    description: str = ""
    kind: str = "steady"
    mix: Mapping[str, float] = field(default_factory=lambda: {"get": 10.0, "set": 1.0})
    keys: Keys = Keys()
    values: Values = Values()
    ttl: int = 0
    preload: bool = True
    trace: str = ""
    load: Load = Load()
