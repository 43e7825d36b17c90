"""A newcomer who follows a page from top to bottom, exactly as printed.

Run on an isolated machine (`tests.support.machine`): ``python -m tests.support.reader PAGE
RESULTS [slow]``. It works in a temporary folder that looks like a fresh checkout in which
everything is installed. A server is started where the page does so, and stopped by Ctrl-C at the
next one; input at a prompt goes to the shell that was started last. If a page uses a server
without starting one, the newcomer has one running; if it uses a bucket, there is one on the
emulator.

The output of each block is written to the file RESULTS, as an object from line numbers to texts.
The exit code is 1 if a block failed.
"""

import contextlib
import doctest
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.machine import start_network
from tests.support.pages import PROMPT, Block, blocks, commands
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

__all__ = ["SLOW", "is_read"]

SLOW = "run by the slow tests"
"""The note of a block that only the slow tests run."""

_PROGRAM = r"^(?:\w+=\S+ )*(?:memlite|python -m memlite|\./scripts/serve)"
_TRIAL = re.compile(_PROGRAM + r" cluster try\b")
_EMULATOR = re.compile(_PROGRAM + r" gcs-emulator\b")
_SERVER = re.compile(
    _PROGRAM
    + r"(?! (?:bench|shell|top|gcs-emulator|cluster (?:plan|route)|"
    + r".*--(?:help|version|print-config))\b)"
)
_SHELL = re.compile(r"(?:memlite |\./scripts/)shell(?: --dialect \w+)?(?: +#.*)?")
_BUCKET = re.compile(r"gs://([\w-]+)")
_REPORT = "report.html"
_PATIENCE = 60
_OF_A_BLOCK = 600

# Commands that a page must not run on the machine of a developer who runs the tests.
_ABSENT = ("sudo", "docker", "gcloud", "kubectl", "helm", "terraform", "tofu", "systemctl")

# Stands for the Python of a virtual environment in which everything is already installed. Its loads
# are short and few, and need few keys, which may be stored in an emulated bucket: their results are
# not compared with anything. On a page that shows a report, only the first comparison draws it.
_SHORT = "--duration 200ms --warm-up 50ms --keys 100"
_PYTHON = f"""#!/bin/sh
case "$1 $2" in "-m pip" | "-m venv") exit 0 ;; esac
case "$1 $2 $3 $4" in
    "-m memlite bench compare")
        set -- "$@" {_SHORT} --clients 2,8 --repetitions 1 $(cat .drawn 2>/dev/null || true)
        echo --no-report >.drawn
        ;;
    "-m memlite bench run") set -- "$@" {_SHORT} --repetitions 1 --no-report ;;
    "-m memlite bench factorial") set -- "$@" {_SHORT} --repetitions 2 --no-report ;;
    "scripts/benchmarks/bench_commands.py --rounds "*) set -- "$@" --rounds 2 ;;
esac
exec "{sys.executable}" "$@"
"""


def is_read(block: Block, slow: bool) -> bool:
    """Return whether the newcomer runs a block."""
    return block.can_be_run and (
        not block.note.startswith(("run by", "not run")) or (slow and block.note == SLOW)
    )


class FailedError(Exception):
    """A block of a page does not work; the text describes the failure."""


class Reader:
    """Follows one page.

    Args:
        folder: an empty folder, which becomes the checkout.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._shell = "memlite shell"
        self._names: dict[str, object] = {}
        self._environment = self._check_out()
        self._kinds: dict[str, Callable[[str], str]] = {
            "sh": self._in_terminal,
            "python": self._in_python,
            "memcached": self._on_the_wire,
            "text": self._in_shell,
        }

    def _check_out(self) -> dict[str, str]:
        for name in ("memlite", "scripts", "requirements", "pyproject.toml", "docs", "terraform"):
            (self._folder / name).symlink_to(ROOT / name)
        programs = self._folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name, text in {
            "python": _PYTHON,
            "python3": _PYTHON,
            "memlite": '#!/bin/sh\nexec python -m memlite "$@"\n',
            **dict.fromkeys(_ABSENT, '#!/bin/sh\necho "$0: not on this machine"\nexit 127\n'),
        }.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        ours = {name: text for name, text in os.environ.items() if not name.startswith("MEMLITE_")}
        return {
            **ours,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHON": str(programs / "python"),
            "PYTHONPATH": str(ROOT),
            "HOME": str(self._folder),
            "STORAGE_EMULATOR_HOST": "http://127.0.0.1:4443",
        }

    def do(self, block: Block) -> str:
        """Run a block, and return its output.

        Raises:
            FailedError: the block does not work.
        """
        for bucket in _BUCKET.findall(block.text):
            self._have_emulator(f"memlite gcs-emulator --bucket {bucket}")
        if "11211" in block.text and not _SERVER.search(block.text):
            self._have_server()
        return self._kinds[block.language](block.text)

    def stop(self) -> None:
        """Press Ctrl-C in all terminals."""
        self._stop_server()
        for process in self._started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    # -- terminals

    def _in_terminal(self, text: str) -> str:
        printed, waiting = "", []
        for command in commands(text):
            if _SERVER.search(command) or _EMULATOR.search(command):
                printed += self._run(waiting)
                waiting = []
                if _EMULATOR.search(command):
                    self._have_emulator(command)
                else:
                    self._start_server(command)
            else:
                waiting.append(command)
                if _SHELL.fullmatch(command):
                    self._shell = command
        return printed + self._run(waiting)

    def _run(self, lines: list[str]) -> str:
        if not any(lines):
            return ""
        script = "set -euo pipefail\n" + "\n".join(lines)
        return self._output(["bash", "-c", script])

    def _output(self, command: list[str], typed: str | None = None) -> str:
        ran = subprocess.run(
            command, cwd=self._folder, env=self._environment, input=typed, text=True,
            stdin=subprocess.DEVNULL if typed is None else None,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_OF_A_BLOCK, check=False,
        )  # fmt: skip
        if ran.returncode:
            raise FailedError(f"exit code {ran.returncode}:\n{ran.stdout}")
        return ran.stdout

    def _have_server(self) -> None:
        if self._server is None and not _accepts(11211):
            self._start_server("memlite")

    def _start_server(self, command: str) -> None:
        self._stop_server()
        ports = self._folder / ".ports"
        ports.unlink(missing_ok=True)
        is_ready = (lambda: _accepts(11211)) if _TRIAL.search(command) else ports.exists
        self._server = self._start(command, {"MEMCACHED_PORT_FILENAME": str(ports)}, is_ready)

    def _stop_server(self) -> None:
        process, self._server = self._server, None
        if process is None:
            return
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(_PATIENCE)
        self._started.remove(process)
        if code:
            raise FailedError(f"Ctrl-C ended a server with exit code {code}")

    def _have_emulator(self, command: str) -> None:
        if not _accepts(4443):
            self._start(command, {}, lambda: _accepts(4443))

    def _start(
        self, command: str, variables: dict[str, str], is_ready: Callable[[], bool]
    ) -> subprocess.Popen[bytes]:
        output = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - the process has it
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=self._folder, env={**self._environment, **variables},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        self._started.append(process)
        wait_until(lambda: is_ready() or process.poll() is not None, _PATIENCE)
        if process.poll() is not None or not is_ready():
            output.seek(0)
            raise FailedError(f"{command}: it does not serve:\n{output.read().decode()}")
        return process

    # -- conversations and programs

    def _in_shell(self, text: str) -> str:
        typed, shown = [], []
        for line in text.splitlines():
            by_person = re.match(rf"{PROMPT}|\d+ bytes> ", line)
            (typed if by_person else shown).append(line[by_person.end() :] if by_person else line)
        printed = self._output(["bash", "-c", self._shell], "\n".join(typed))
        _compare(shown, printed.splitlines())
        return printed

    def _on_the_wire(self, text: str) -> str:
        with socket.create_connection(("127.0.0.1", 11211), _PATIENCE) as connection:
            replies = connection.makefile("rb")
            for line in text.splitlines():
                if line.startswith("> "):
                    connection.sendall(line[2:].encode() + b"\r\n")
                else:
                    _compare(line, replies.readline().decode().removesuffix("\r\n"))
        return ""

    def _in_python(self, text: str) -> str:
        if not text.startswith(">>>"):
            return self._output([str(self._folder / ".venv" / "bin" / "python"), "-c", text])
        test = doctest.DocTestParser().get_doctest(text, self._names, "the session", None, 0)
        messages = io.StringIO()
        result = doctest.DocTestRunner(verbose=False).run(
            test, out=messages.write, clear_globs=False
        )
        self._names = test.globs
        if result.failed:
            raise FailedError(messages.getvalue())
        return ""


def _compare(expected: object, found: object) -> None:
    if expected != found:
        raise FailedError(f"the page shows {expected!r}, but this was {found!r}")


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def _reader(page: str) -> Iterator[Reader]:
    with tempfile.TemporaryDirectory(prefix="memlite-reader-") as folder:
        reader = Reader(Path(folder))
        if _REPORT not in page:
            Path(folder, ".drawn").write_text("--no-report\n")
        os.chdir(folder)
        try:
            yield reader
        finally:
            os.chdir("/")
            reader.stop()


def main(page: str, results: str, *speed: str) -> int:
    """Follow a page, and return the exit code."""
    start_network()
    of_page = blocks(Path(page))  # its path may be relative
    text = Path(page).read_text(encoding="utf-8")
    printed: dict[int, str] = {}
    with _reader(text) as reader:
        for block in of_page:
            if is_read(block, "slow" in speed):
                try:
                    printed[block.line] = reader.do(block)
                except FailedError as failure:
                    print(f"{page}:{block.line}:\n{block.text}\n{failure}")  # noqa: T201 - a program
                    return 1
    Path(results).write_text(json.dumps(printed))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
