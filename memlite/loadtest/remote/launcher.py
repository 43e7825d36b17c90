"""``memlite bench launcher``: starts servers and proxies for a load tester on another machine."""

import base64
import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from memlite.core import signals
from memlite.core.build import describe_build
from memlite.core.errors import ConfigError, StartError
from memlite.core.version import __version__
from memlite.loadtest.launching import LOOPBACK, Launch, last_line, launched
from memlite.loadtest.machine import machine
from memlite.loadtest.mounts import file_system
from memlite.loadtest.remote.counters import machine_times, mounts, process_counters
from memlite.testing.process import ServerProcess

__all__ = ["PATIENCE", "serve"]

PATIENCE: Final = 30.0
"""Seconds of silence after which the load tester is presumed dead."""
_PIECE: Final = 1 << 20  # bytes of a file in a reply
_INPUT: Final = 0


def serve() -> int:
    """Answer requests until the input ends, or is silent for too long.

    Returns:
        The exit code, 0.
    """
    signals.unblock()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    # Keep other output from getting between the replies.
    replies = os.dup(1)
    os.dup2(2, 1)
    with contextlib.ExitStack() as stack, contextlib.suppress(BrokenPipeError):
        launcher = _Launcher(stack)
        _send(replies, launcher.greeting())
        for line in _lines(launcher):
            request = json.loads(line)
            _send(replies, {"id": request["id"], **launcher.answer(request)})
    return 0


def _leave(number: int, _: object) -> None:
    # Only once: a second signal must not interrupt the shutdown of the processes.
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def _send(file: int, message: Mapping[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(file, data) :]


def _lines(launcher: "_Launcher") -> Iterator[bytes]:
    """Yield the requests; empty lines are keepalives."""
    rest = b""
    while select.select([_INPUT], [], [], launcher.patience)[0]:
        data = os.read(_INPUT, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from filter(None, lines)


class _Launcher:
    """Keeps track of the processes that it has started, and answers requests.

    Attributes:
        patience: seconds of silence after which the launcher ends.
    """

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.patience = PATIENCE
        self._stack = stack
        self._host = LOOPBACK
        self._ports: range | None = None
        self._running: dict[int, tuple[str, ServerProcess, contextlib.ExitStack, Path]] = {}
        self._answers: dict[str, Callable[[Any], object]] = {
            "begin": self._begin,
            "start": self._start,
            "check": self._check,
            "counters": self._counters,
            "stop": self._stop,
            "read": self._read,
            "end": self._end,
        }

    @staticmethod
    def greeting() -> dict[str, Any]:
        """Return the greeting for the load tester."""
        # Set by ssh: the client's address and port, and the local ones.
        _, _, address, *_ = [*os.environ.get("SSH_CONNECTION", "").split(" "), "", "", ""]
        return {
            "memlite": __version__,
            "build": describe_build(),
            "address": address,
            "machine": machine(),
        }

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply to a request."""
        try:
            return {"found": self._answers[request["do"]](request["of"])}
        except (StartError, ConfigError) as error:
            return {"error": str(error).removeprefix("bench: ")}
        except OSError as error:
            return {"error": error.strerror or str(error)}

    def _begin(self, of: Mapping[str, Any]) -> float:
        """Apply the settings; return the local time, to compare clocks."""
        self.patience, self._host = of["patience"], of["host"]
        self._ports = range(of["ports"][0], of["ports"][1] + 1) if of["ports"] else None
        return time.time()

    def _start(self, of: Mapping[str, Any]) -> dict[str, Any]:
        launch = Launch(**{**of, "arguments": tuple(of["arguments"])})
        with contextlib.ExitStack() as stack:
            port = self._free_port()
            running, folder = stack.enter_context(
                launched(launch, Path.cwd(), host=self._host, port=port)
            )
            own = stack.pop_all()
        self._stack.push(own)
        pid = running.process.pid
        self._running[pid] = launch.name, running, own, folder
        return {"pid": pid, "port": running.port, "disk": file_system(folder, mounts())}

    def _free_port(self) -> int:
        """Return a port to listen on; 0 for any.

        Raises:
            StartError: all allowed ports are taken.
        """
        if self._ports is None:
            return 0
        for port in self._ports:
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self._host, port))
                return port
        raise StartError(f"--ports: all from {self._ports[0]} to {self._ports[-1]} are in use")

    def _check(self, pid: int) -> None:
        """Check that a process is running.

        Raises:
            StartError: it has exited.
        """
        name, running, _, _ = self._running[pid]
        if running.process.poll() is not None:
            raise StartError(f"{name} has exited: {last_line(running.output)}")

    def _counters(self, pids: list[int]) -> dict[str, Any]:
        found = {pid: process_counters(pid) for pid in pids}
        return {"machine": machine_times(), "processes": found}

    def _stop(self, pid: int) -> None:
        """Stop a process; its files stay."""
        self._running[pid][1].stop(timeout=PATIENCE)

    def _read(self, of: Mapping[str, Any]) -> str:
        """Return a chunk of one of a process's files."""
        with (self._running[of["pid"]][3] / of["file"]).open("rb") as file:
            file.seek(of["offset"])
            return base64.b64encode(file.read(_PIECE)).decode("ascii")

    def _end(self, pid: int) -> None:
        """End a process, and remove its files."""
        self._running.pop(pid)[2].close()
