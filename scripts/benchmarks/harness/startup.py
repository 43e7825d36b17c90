"""The time from starting a server to its first connection and its first reply."""

import contextlib
import socket
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from harness.contestants import Contestant, in_turn
from harness.processes import HOST, BenchError, free_port, pinned, progress
from harness.scenarios import Setting

__all__ = ["Start", "StartUp", "compare_starts", "start_ups"]

_MEGABYTES: Final = 64
_DEADLINE_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.0002


@dataclass(frozen=True, slots=True)
class Start:
    """One start.

    Attributes:
        round: the number of the round, from 1.
        server: a contestant's name, or the name of a Python that does nothing.
        connected: seconds until the first connection was accepted, if only by the kernel.
        answered: seconds until the first reply, or until a Python that does nothing has exited.
    """

    round: int
    server: str
    connected: float | None
    answered: float

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object for the results file."""
        return {"scenario": "start-up", **asdict(self)}


@dataclass(frozen=True, slots=True)
class StartUp:
    """Medians of a server's starts, in seconds; see `Start`."""

    server: str
    connected: float | None
    answered: float
    slowest: float


def compare_starts(setting: Setting, rounds: int) -> list[Start]:
    """Start every server, and every Python that runs one, `rounds` times in turn."""
    found: list[Start] = []
    # Round 0 is a warm-up that reads programs and modules from disk.
    for turn in range(rounds + 1):
        progress(f"start-up: round {turn} of {rounds}")
        for contestant in in_turn(setting.contestants, turn):
            starts = [_start(contestant, setting.cores, turn)]
            if contestant.interpreter is not None:
                starts.append(_do_nothing(contestant, setting.cores[0], turn))
            found += starts if turn > 0 else []
    return found


def _start(contestant: Contestant, cores: tuple[int, int], turn: int) -> Start:
    port = free_port()
    command = [*contestant.arguments(_MEGABYTES), "-p", str(port)]
    with pinned(cores[0]):
        begin = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=contestant.environment,
        )
    try:
        with pinned(cores[1]):
            sock = _connect(contestant.name, process, port)
            connected = time.perf_counter() - begin
            with sock:
                sock.sendall(b"version\r\n")
                if not sock.recv(100).startswith(b"VERSION "):
                    raise BenchError(f"{contestant.name} did not reply with its version")
            answered = time.perf_counter() - begin
    finally:
        process.kill()
        process.wait()
    return Start(turn, contestant.name, connected, answered)


def _connect(name: str, process: subprocess.Popen[bytes], port: int) -> socket.socket:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((HOST, port), timeout=_DEADLINE_SECONDS)
        time.sleep(_PAUSE_SECONDS)
    raise BenchError(f"{name} did not start")


def _do_nothing(contestant: Contestant, core: int, turn: int) -> Start:
    assert contestant.interpreter is not None  # checked by the caller
    with pinned(core):
        begin = time.perf_counter()
        subprocess.run(
            [contestant.interpreter, "-c", "pass"], env=contestant.environment, check=True
        )
        used = time.perf_counter() - begin
    return Start(turn, f"{contestant.name}'s Python, -c pass", None, used)


def start_ups(starts: Sequence[Start]) -> list[StartUp]:
    """Return the medians of each server."""
    by_server: dict[str, list[Start]] = {}
    for one in sorted(starts, key=lambda one: one.round):
        by_server.setdefault(one.server, []).append(one)
    found = []
    for server, all_of_it in by_server.items():
        connected = [one.connected for one in all_of_it if one.connected is not None]
        found.append(
            StartUp(
                server,
                statistics.median(connected) if connected else None,
                statistics.median(one.answered for one in all_of_it),
                max(one.answered for one in all_of_it),
            )
        )
    return found
