"""The ``memlite gcs-emulator`` command."""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from memlite.config.parsers import integer, number
from memlite.core import logs, signals
from memlite.core.errors import ConfigError, StartError
from memlite.testing.gcs_emulator.background import loop_factory
from memlite.testing.gcs_emulator.disk import Disk
from memlite.testing.gcs_emulator.errors import GcsError
from memlite.testing.gcs_emulator.faults import LATE_DELAY, Faults
from memlite.testing.gcs_emulator.latency import parse_latency
from memlite.testing.gcs_emulator.server import GcsEmulator
from memlite.testing.gcs_emulator.store import Store

__all__ = ["command_line", "main"]

_NAME = "gcs-emulator"
_SEED = integer(-(2**63), 2**63 - 1)
_T = TypeVar("_T")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{_NAME}: {message} (memlite {_NAME} --help lists the options)")


def main(arguments: Sequence[str]) -> int:
    """Run the emulator until SIGINT or SIGTERM.

    Args:
        arguments: the command-line arguments after the subcommand's name.

    Returns:
        The exit code, 0.

    Raises:
        ConfigError: an argument is invalid.
        StartError: the address, the port or the data directory cannot be used.
    """
    try:
        options = command_line().parse_args(arguments)
    except SystemExit:  # after printing --help
        return 0
    logs.configure(logging.INFO if options.verbose else logging.WARNING, "text")
    try:
        emulator = _emulator(options)
    except (ValueError, GcsError) as error:
        raise ConfigError(f"{_NAME}: {error}") from None
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(emulator))
    return 0


def _emulator(options: argparse.Namespace) -> GcsEmulator:
    faults = Faults(
        seed=options.seed,
        read_latency=options.read_latency or options.latency,
        write_latency=options.write_latency or options.latency,
        error_rates=dict(pair for pairs in options.error_rate for pair in pairs),
        reset_rate=options.reset_rate,
        lost_ack_rate=options.lost_ack_rate,
        lost_ack=options.lost_ack,
        late_rate=options.late_rate,
        late_delay=options.late_delay,
    )
    if options.outage:
        faults.begin_outage(options.outage)
    try:
        store = Store(
            ordered_generations=options.ordered_generations,
            object_write_rate=options.object_write_rate,
            persistence=Disk(options.data) if options.data else None,
        )
    except StartError as error:
        raise StartError(f"{_NAME}: --data {error}") from None
    return GcsEmulator(
        options.bucket,
        host=options.host,
        port=options.port,
        store=store,
        faults=faults,
        require_token=options.require_token,
    )


async def _run(emulator: GcsEmulator) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        # On Windows loops have no signal handlers; there KeyboardInterrupt ends the process.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(signum, stop.set)
    async with emulator:
        signals.unblock()
        url = emulator.url
        sys.stdout.write(f"{url} accepts requests; export STORAGE_EMULATOR_HOST={url}\n")
        sys.stdout.flush()
        await stop.wait()
    signals.block()  # nothing is left to stop


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog=f"memlite {_NAME}",
        description="A strict emulator of Google Cloud Storage, for tests and benchmarks.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add(
        "--port",
        type=_checked(integer(0, 65535)),
        default=4443,
        metavar="NUM",
        help="port to listen on; 0 for any free one (default: %(default)s)",
    )
    add(
        "--bucket",
        action="append",
        default=[],
        metavar="NAME",
        help="create this bucket on startup; may be repeated",
    )
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="persist buckets and objects in this directory",
    )
    add(
        "--object-write-rate",
        type=_checked(number(0, inclusive=False)),
        metavar="NUM",
        help="writes per second to an object before it responds with 429; GCS: 1 "
        "(default: unlimited)",
    )
    add(
        "--ordered-generations",
        action="store_true",
        help="make generations increase over time, which GCS does not guarantee",
    )
    add("--require-token", action="store_true", help="refuse requests without a bearer token")
    _add_faults(parser)
    add("-v", "--verbose", action="store_true", help="log each request on stderr")
    return parser


def _add_faults(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "faults", "for requests that concern objects; can be changed through /_emulator/faults"
    )
    add = group.add_argument
    latency = _checked(parse_latency)
    add(
        "--latency",
        type=latency,
        metavar="DIST",
        help="latency added to each request: fixed:20ms, uniform:10ms-30ms or "
        "lognormal:median=20ms,p99=80ms",
    )
    add("--read-latency", type=latency, metavar="DIST", help="latency of reads only")
    add("--write-latency", type=latency, metavar="DIST", help="latency of writes only")
    add(
        "--error-rate",
        type=_checked(_error_rates),
        action="append",
        default=[],
        metavar="STATUS=SHARE,...",
        help="fail this share of requests with an error: 503=0.1,429=0.02",
    )
    share = _checked(_share)
    add(
        "--reset-rate",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="reset the connection of this share of requests instead of executing them",
    )
    add(
        "--lost-ack-rate",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="execute this share of writes but lose the acknowledgement",
    )
    add(
        "--lost-ack",
        choices=("reset", "503", "mixed"),
        default="reset",
        help="what the client sees instead of the acknowledgement (default: %(default)s)",
    )
    add(
        "--late-rate",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="reset the connection of this share of writes, and execute them later",
    )
    add(
        "--late-delay",
        type=latency,
        default=LATE_DELAY,
        metavar="DIST",
        help="how much later (default: %(default)s)",
    )
    add(
        "--outage",
        choices=("503", "reset", "hang"),
        help="fail every request, until changed through /_emulator/faults",
    )
    add("--seed", type=_checked(_SEED), metavar="NUM", help="random seed, for reproducible faults")


def _checked(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    """Wrap `parse` so that argparse shows the messages of its ValueErrors."""

    def convert(text: str) -> _T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _share(text: str) -> float:
    share = number(0, inclusive=True)(text)
    if share > 1:
        raise ValueError(f"must be from 0 to 1, not {text}")
    return share


def _error_rates(text: str) -> list[tuple[int, float]]:
    pairs = []
    for part in text.split(","):
        status, equals, share = part.partition("=")
        if not equals:
            raise ValueError(f"must be STATUS=SHARE, not {part!r}")
        pairs.append((integer(400, 599)(status), _share(share)))
    return pairs
