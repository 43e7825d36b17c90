"""Options that override a field of the workload."""

import argparse

from memlite.loadtest import option_values as values

__all__ = ["add_workload"]


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Add the options that override a field of the workload; `dest` names the field."""
    overrides = parser.add_argument_group("workload, overriding the preset or file")
    add = overrides.add_argument
    add(
        "--mix",
        type=values.checked(values.mix),
        metavar="OP=SHARE,...",
        help="operations and their shares, such as get=10,set=1",
    )
    add(
        "--keys",
        dest="keys.count",
        type=values.checked(values.count),
        metavar="NUM",
        help="number of keys",
    )
    add(
        "--distribution",
        dest="keys.distribution",
        metavar="NAME",
        help="uniform, zipfian, latest, hotspot or sequential",
    )
    add(
        "--theta",
        dest="keys.theta",
        type=values.checked(float),
        metavar="NUM",
        help="skew of zipfian and latest",
    )
    add(
        "--value-size",
        type=values.checked(values.sizes),
        metavar="LIST",
        help="value size in bytes: 100, or 100,1k,10k to measure each",
    )
    add(
        "--ttl",
        dest="ttl",
        type=values.checked(int),
        metavar="SECONDS",
        help="expiration time of stored items",
    )
    add(
        "--trace",
        dest="trace",
        metavar="FILE",
        help="trace to replay (CSV: time,operation,key,size)",
    )
    add(
        "--pipeline",
        dest="load.pipeline",
        type=values.checked(values.positive),
        metavar="NUM",
        help="maximum number of requests in flight on a connection",
    )
    add(
        "--multiget",
        dest="load.multiget",
        type=values.checked(values.positive),
        metavar="NUM",
        help="keys per get, 1 to 100",
    )
    add(
        "--noreply",
        dest="load.noreply",
        action="store_true",
        default=None,
        help="send writes with noreply",
    )
    add(
        "--rate",
        type=values.checked(values.rates),
        metavar="LIST",
        help="open loop: operations per second of all clients together; a list measures each rate",
    )
    add(
        "--arrivals",
        dest="load.arrivals",
        choices=("constant", "poisson"),
        help="arrival process of an open loop",
    )
    add(
        "--think-time",
        dest="load.think_time",
        type=values.checked(values.duration),
        metavar="TIME",
        help="pause between a reply and the next request",
    )
    add("--operations", dest="load.operations", type=values.checked(values.count), metavar="NUM",
        help="operations of all clients per repetition, instead of --duration")  # fmt: skip
    add(
        "--duration",
        dest="load.duration",
        type=values.checked(values.duration),
        metavar="TIME",
        help="length of a repetition",
    )
    add(
        "--warm-up",
        dest="load.warm_up",
        type=values.checked(values.duration),
        metavar="TIME",
        help="unmeasured load before each repetition",
    )
    add(
        "--repetitions",
        dest="load.repetitions",
        type=values.checked(values.positive),
        metavar="NUM",
        help="number of repetitions",
    )
