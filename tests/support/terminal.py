"""A command on a terminal, driven by key presses."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Terminal"]

_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command on a terminal of its own, 80 columns wide and 50 lines high.

    Args:
        arguments: the arguments of memlite.
        environment: further variables.
    """

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.screen, self._child_end = pty.openpty()
        self.resize(80, 50)
        self.before = termios.tcgetattr(self._child_end)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "memlite", *arguments],
            stdin=self._child_end,
            stdout=self._child_end,
            stderr=self._child_end,
            start_new_session=True,
            # So that ctrl-c reaches it as a signal while no prompt is open.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            # No queries for the cursor position: there is no terminal to answer them.
            env={**_environment(), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
        )
        self.text = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._child_end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.screen, keys.encode())

    def see(self, expected: str, seconds: float = 15) -> str:
        """Wait until `expected` is shown, and return everything up to it."""
        deadline = time.monotonic() + seconds
        while expected not in (plain := _STYLES.sub("", self.text)):
            ready, _, _ = select.select([self.screen], [], [], max(0, deadline - time.monotonic()))
            data = b""
            with contextlib.suppress(OSError):  # the command has exited
                data = os.read(self.screen, 65536) if ready else b""
            assert data, f"{expected!r} is not in {plain!r}; ended: {self.process.poll()}"
            self.text += data.decode("utf-8", "replace")
        shown, _, _ = plain.partition(expected)
        self.text = plain[len(shown) + len(expected) :]
        return shown + expected

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._child_end)

    def raw(self, expected: str, seconds: float = 15) -> str:
        """Wait until `expected` is shown, and return everything, including styles."""
        text, deadline = "", time.monotonic() + seconds
        while expected not in text:
            assert time.monotonic() < deadline, text
            if select.select([self.screen], [], [], 0.1)[0]:
                text += os.read(self.screen, 65536).decode("utf-8", "replace")
        return text

    def until(self, condition: Callable[[], object], seconds: float = 15) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        os.close(self.screen)
        os.close(self._child_end)


def _environment() -> dict[str, str]:
    """Return the variables except those that would fix the size of a terminal."""
    return {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
