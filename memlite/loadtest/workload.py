"""The description of a workload: its operations, keys, values and load."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["MAX_KEY_LENGTH", "MAX_VALUE_SIZE", "OPERATIONS", "Keys", "Load", "Values", "Workload"]

MAX_VALUE_SIZE = 128 * 1024 * 1024
"""The largest value a workload may store, in bytes."""

MAX_KEY_LENGTH = 250
"""memcached's limit on keys, in bytes."""

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
"""The operations a mix may contain.

Besides the protocol's commands, these include YCSB's operations: ``insert`` sets a new key,
``scan`` gets up to 100 consecutive keys, and ``rmw`` gets a key and then sets it. A ``cas`` first
fetches the key's unique value with ``gets``.
"""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keyspace and how requests are distributed over it.

    Attributes:
        count: number of keys.
        distribution: ``uniform``, ``zipfian``, ``latest`` (zipfian by age, newest first),
            ``hotspot`` or ``sequential``.
        theta: skew of zipfian and latest; YCSB uses 0.99.
        hot_fraction: for hotspot, the share of keys that are hot.
        hot_share: for hotspot, the share of operations that go to hot keys.
        prefix: the start of every key; the key's number follows.
    """

    count: int = 10_000
    distribution: str = "uniform"
    theta: float = 0.99
    hot_fraction: float = 0.2
    hot_share: float = 0.8
    prefix: str = "key-"


@dataclass(frozen=True, slots=True)
class Values:
    """The distribution of value sizes, in bytes.

    Attributes:
        distribution: ``fixed``, ``uniform``, ``lognormal`` or ``file``.
        size: for fixed, the size of every value; for lognormal, the median.
        least: for uniform, the smallest size; for lognormal, the lower clamp.
        most: for uniform, the largest size; for lognormal, the upper clamp.
        sigma: for lognormal, the standard deviation of the logarithm.
        file: a text file with one size on each line, all equally likely.
    """

    distribution: str = "fixed"
    size: int = 100
    least: int = 1
    most: int = 1_000_000
    sigma: float = 1.0
    file: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """How clients apply the load.

    Attributes:
        pipeline: maximum number of requests in flight on a connection.
        multiget: keys per get, 1 to 100; each key counts as an operation.
        noreply: whether writes are sent with ``noreply``.
        rate: for an open loop, operations per second over all clients; 0 for a closed loop.
        arrivals: for an open loop, the arrival process: ``constant`` or ``poisson``.
        think_time: pause between a reply and the client's next request, in seconds.
        operations: operations per repetition over all clients; 0 to run for `duration` instead.
        duration: length of a repetition in seconds, when `operations` is 0.
        warm_up: seconds of load before each repetition that are not measured.
        repetitions: number of repetitions.
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
    """A complete description of what clients do.

    Attributes:
        name: the name of the preset or file.
        description: one line of text.
        kind: ``steady``: clients stay connected and run the mix; ``concurrent``: new clients all
            arrive at once, and each connects, sets its own key, gets it and disconnects.
        mix: relative weights of `OPERATIONS`.
        keys: the keyspace.
        values: the distribution of value sizes.
        ttl: exptime of stored items, in seconds; 0 for none.
        preload: whether all keys are stored before the measurement.
        trace: a CSV file to replay instead of the mix.
        load: how clients apply the load.
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
