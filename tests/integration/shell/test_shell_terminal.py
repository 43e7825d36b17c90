"""The shell on a real terminal: typing, TAB, history, ctrl-c and ctrl-d."""

import contextlib
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.servers import RunningServer
from tests.support.terminal import Terminal

pytest.importorskip("prompt_toolkit")

CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"


class Shell(Terminal):
    """A shell on a terminal of its own."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        super().__init__("shell", *arguments, **environment)

    def leave(self) -> int:
        """Type ctrl-d until the shell ends, and return its exit code.

        After ctrl-c, the old prompt is drawn once more. A ctrl-d typed before the next prompt
        reads the keys is lost: the terminal takes it for the end of an empty line.
        """
        for _ in range(20):
            with contextlib.suppress(OSError):  # the shell has exited
                self.type(CTRL_D)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(1)
        raise AssertionError("the shell did not leave")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Shell]]:
    opened: list[Shell] = []

    def open_one(*arguments: str, **environment: str) -> Shell:
        opened.append(Shell(*arguments, XDG_STATE_HOME=str(tmp_path), **environment))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_a_conversation(memlite: RunningServer, terminal: Callable[..., Shell]) -> None:
    one = terminal(f"127.0.0.1:{memlite.port}")
    prompt = f"127.0.0.1:{memlite.port}>"
    one.see("connected to 127.0.0.1")
    one.see(prompt)
    one.type('set greeting "hello \\x1b[31m world" 7\r')
    one.see("STORED")
    one.see(prompt)
    one.type("get greeting\r")
    one.see("greeting: 17 bytes, flags 7")
    one.see("hello \\x1b[31m world")
    one.see(prompt)
    one.type("set n 0 0 5\r")
    one.see("5 bytes>")
    one.type("12345\r")
    one.see("STORED")
    one.see(prompt)
    one.type("stats settings\r")
    one.see("maxbytes")
    one.see("67,108,864")
    one.see(prompt)
    one.type("nonsense\r")
    one.see("ERROR")
    one.see(prompt)
    one.type(CTRL_D)
    assert one.process.wait(60) == 0
    assert one.settings() == one.before


def test_the_lite_dialect(
    start: Callable[..., RunningServer], terminal: Callable[..., Shell]
) -> None:
    server = start("--dialect", "lite")
    one = terminal("--dialect", "lite", f"127.0.0.1:{server.port}")
    prompt = f"127.0.0.1:{server.port}>"
    one.see("connected to 127.0.0.1")
    one.see(prompt)
    one.type("set word 4\r")
    one.see("4 bytes>")
    one.type("lett\r")
    one.see("STORED")
    one.see(prompt)
    one.type("get word\r")
    one.see("word: 4 bytes")
    one.see("lett")
    one.see(prompt)
    one.type("set word letters\r")
    one.see("NOT_STORED")
    one.see(prompt)
    one.type("help set\r")
    one.see("set KEY BYTES")
    one.see(prompt)
    one.type("\t")
    one.see("show a value")
    one.type(CTRL_C)
    one.see(prompt)
    assert one.leave() == 0


@pytest.mark.alone
def test_tab_completes(memlite: RunningServer, terminal: Callable[..., Shell]) -> None:
    one = terminal(f"127.0.0.1:{memlite.port}")
    one.see(">")
    one.type("versi\t")
    one.see("on")
    time.sleep(1)  # output and input settle a moment later
    one.type("\r")
    one.see("VERSION ")
    one.see(">")
    one.type("stats \t")
    one.see("the server's settings")
    one.type(CTRL_C)
    one.see(">")
    one.type("mg key \t")
    one.see("return the cas unique")
    one.type(CTRL_C)
    one.see(">")
    one.type("help mg\r")
    one.see("R(ttl)")


@pytest.mark.alone
def test_history_persists(
    memlite: RunningServer, terminal: Callable[..., Shell], tmp_path: Path
) -> None:
    one = terminal(f"127.0.0.1:{memlite.port}")
    one.see(">")
    one.type("set kept 0 0 2\r")
    one.see("2 bytes>")
    one.type("hi\r")
    one.see("STORED")
    one.see(">")
    one.type('set auth "ada secret"\r')
    one.see("STORED")
    one.see(">")
    one.type("get kept\r")
    one.see("kept: 2 bytes")
    one.see(">")
    one.type("exit\r")
    assert one.process.wait(60) == 0
    again = terminal(f"127.0.0.1:{memlite.port}")
    again.see(">")
    again.type(UP + UP)
    again.see("get kept")
    time.sleep(1)
    again.type("\r")
    again.see("kept: 2 bytes")
    again.see(">")
    assert again.leave() == 0
    kept = (tmp_path / "memlite" / "shell_history").read_text()
    assert kept.splitlines() == ["set kept 0 0 2", "get kept", "exit", "get kept"]


@pytest.mark.alone
def test_ctrl_c_clears_the_line_and_stops_a_command(
    start: Callable[..., RunningServer], terminal: Callable[..., Shell]
) -> None:
    server = start()
    one = terminal("--timeout", "60", f"127.0.0.1:{server.port}")
    one.see(">")
    one.type("flush_all" + CTRL_C)
    one.see(">")
    one.type("stats\r")
    assert "cmd_flush" in one.see("cmd_touch")
    one.see(">")
    server.pause()
    try:
        one.type("version\r")
        one.until(lambda: one.settings()[3] & termios.ISIG)  # no prompt is reading the keys
        time.sleep(0.5)  # or handling signals any more
        one.type(CTRL_C)
        one.see("(stopped)")
        one.see(">")
    finally:
        server.process.send_signal(signal.SIGCONT)
    one.type("version\r")
    one.see("VERSION")


def test_the_server_goes_away_and_comes_back(
    start: Callable[..., RunningServer], terminal: Callable[..., Shell]
) -> None:
    server = start()
    one = terminal(f"127.0.0.1:{server.port}")
    one.see(">")
    server.stop()
    one.type("version\r")
    one.see("(error) cannot connect to")
    one.see("not connected>")
    with contextlib.ExitStack() as stack:
        again = subprocess.Popen([sys.executable, "-m", "memlite", "-p", str(server.port)])
        stack.callback(again.wait, 20)
        stack.callback(again.terminate)
        for _ in range(100):
            one.type("version\r")
            if "VERSION" in one.see(">"):
                break
            time.sleep(0.1)
        one.type("get a\r")
        one.see("(not found)")


def test_pasted_lines_are_commands_and_values(
    memlite: RunningServer, terminal: Callable[..., Shell]
) -> None:
    one = terminal(f"127.0.0.1:{memlite.port}")
    one.see(">")
    one.type("\x1b[200~set pasted 0 0 3\nabc\nget pasted\x1b[201~\r")
    one.see("STORED")
    one.see("pasted: 3 bytes, flags 0")


def test_no_colour(memlite: RunningServer, terminal: Callable[..., Shell]) -> None:
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        one = terminal(f"127.0.0.1:{memlite.port}", "nonsense", **environment)
        one.process.wait(60)
        assert ("\x1b[31mERROR" in one.raw("ERROR")) is coloured


def test_the_terminal_is_restored_on_termination(
    memlite: RunningServer, terminal: Callable[..., Shell]
) -> None:
    one = terminal(f"127.0.0.1:{memlite.port}")
    one.see(">")
    one.until(lambda: one.settings() != one.before)
    one.process.terminate()
    assert one.process.wait(60) == 143
    assert one.settings() == one.before


def test_without_prompt_toolkit_the_shell_says_what_to_install(
    memlite: RunningServer, terminal: Callable[..., Shell], tmp_path: Path
) -> None:
    (tmp_path / "prompt_toolkit.py").write_text("raise ModuleNotFoundError(name='prompt_toolkit')")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    one = terminal(f"127.0.0.1:{memlite.port}", PYTHONPATH=path)
    assert one.process.wait(60) == 71
    assert "pip install 'memlite-cache[shell]'" in one.see("work without it")


def test_the_password_is_asked_for_and_not_shown(
    memlite: RunningServer, terminal: Callable[..., Shell]
) -> None:
    # Without authentication, a server treats the first request as an item, and also replies STORED.
    one = terminal("--user", "ada", f"127.0.0.1:{memlite.port}")
    one.see("Password for ada: ")
    one.type("se cret\r")
    assert "cret" not in one.see(">")
    one.type("get login\r")
    one.see("ada se cret")
    one.see(">")
    one.type("auth bob\r")
    one.see("Password for bob: ")
    one.type("other\r")
    assert "other" not in one.see(">")
    one.type("get login\r")
    one.see("bob other")
