"""At a terminal, the server prints its address and how to stop it."""

import os
import pty
import re
import signal
import subprocess
import sys

from tests.support.program import run


def test_a_terminal_is_told_where_it_serves() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "memlite", "-l", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=theirs) as server:
        os.close(theirs)
        shown = b""
        while not shown.endswith(b"\n"):
            shown += os.read(ours, 1000)
        server.send_signal(signal.SIGINT)
    os.close(ours)
    pattern = rb"memlite: serving memory:// on tcp:127\.0\.0\.1:\d+; press Ctrl\+C to stop\r\n"
    assert re.fullmatch(pattern, shown)


def test_a_log_file_is_not() -> None:
    assert run("-l", "127.0.0.1", "-p", "0", "-P", "/nowhere/pid").stderr.count("\n") == 1
