"""The load tester's end of a connection to ``memlite bench launcher`` on another machine."""

import contextlib
import json
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final

from memlite.core.errors import StartError
from memlite.loadtest.launching import last_line
from memlite.loadtest.remote.launcher import PATIENCE

__all__ = ["Connection"]

_BEATS: Final = 6  # heartbeats sent during the silence after which the launcher gives us up
_ANSWER_SECONDS: Final = 90.0  # more than a server may take to start, or to stop
_END_SECONDS: Final = 40.0
_NOT_FOUND: Final = 127  # a shell's exit code if there is no such program


class Connection:
    """A launcher on another machine, and the program that connects it.

    Several threads may send requests; the launcher handles them one at a time.

    Args:
        host: the machine, for messages.
        command: the command line that runs the launcher there.
        patience: seconds without a heartbeat after which the launcher exits.
    """

    def __init__(self, host: str, command: Sequence[str], patience: float = PATIENCE) -> None:
        self._host = host
        self._command = command
        self._patience = patience
        self._asking = threading.Lock()
        self._sending = threading.Lock()
        self._closing = threading.Event()
        self._received = b""
        self._number = 0

    _process: subprocess.Popen[bytes]
    _errors: BinaryIO
    _beating: threading.Thread

    def open(self) -> None:
        """Start the program, without waiting for the launcher.

        Raises:
            StartError: there is no such program.
        """
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        try:
            self._process = subprocess.Popen(  # noqa: S603 - what the user asked for
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                # Shielded from Ctrl-C: it must outlive the measurement.
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise StartError(f"bench: {self._host}: {self._command[0]}: {error.strerror}") from None
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def greeting(self) -> Mapping[str, Any]:
        """Return the launcher's greeting.

        Raises:
            StartError: the machine cannot be reached, or has no memlite with a launcher.
        """
        found = self._receive()
        if "memlite" not in found:
            raise StartError(f"bench: {self._host}: expected a launcher's greeting, got {found}")
        return found

    def ask(self, request: str, of: object = None) -> Any:
        """Send a request and return the content of the reply.

        Raises:
            StartError: the launcher refuses, does not answer, or cannot be reached any more.
        """
        with self._asking:
            found = self._ask(request, of)
        if "error" in found:
            raise StartError(f"bench: {self._host}: {found['error']}")
        return found["found"]

    def _ask(self, request: str, of: object) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "do": request, "of": of}
        try:
            self._send(json.dumps(message).encode() + b"\n")
        except OSError:
            raise self._lost() from None
        # Discard replies to a request that the user has interrupted.
        while (found := self._receive()).get("id") != self._number:
            pass
        return found

    def close(self) -> None:
        """End all processes on the other machine, and wait until they have."""
        self._closing.set()
        self._beating.join()
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        assert self._process.stdout is not None  # noqa: S101 - likewise
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _beat(self) -> None:
        while not self._closing.wait(self._patience / _BEATS):
            with contextlib.suppress(OSError):
                self._send(b"\n")

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        with self._sending:
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        file, deadline = self._process.stdout.fileno(), time.monotonic() + _ANSWER_SECONDS
        while b"\n" not in self._received:
            if not select.select([file], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise StartError(f"bench: {self._host} does not answer")
            data = os.read(file, 1 << 16)
            if not data:
                raise self._lost()
            self._received += data
        line, self._received = self._received.split(b"\n", 1)
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            said = line.decode("utf-8", "replace").strip()
            raise StartError(f"bench: {self._host}: expected a launcher's reply, got {said!r}")
        return found

    def _lost(self) -> StartError:
        """Return the error for a program that has ended, with its last output."""
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip()
        reason = last_line(said) if said else f"the connection was lost (exit code {code})"
        if code == _NOT_FOUND:
            reason += " (specify memlite's path there with --remote-memlite)"
        return StartError(f"bench: {self._host}: {reason}")
