"""Wrong invocations of every command: one clear line, the right exit code, and nothing happens.

They are generated from the command line definitions, so that new options are covered as well.
"""

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("hdrh", reason="the commands need all extras")
pytest.importorskip("aiohttp", reason="the commands need all extras")
pytest.importorskip("prompt_toolkit", reason="the commands need all extras")

from memlite.cli import main as program
from memlite.config import OPTIONS
from tests.support.paths import ROOT


def _commands() -> list[Any]:
    sys.path.insert(0, str(ROOT / "scripts" / "docs"))
    try:
        return list(runpy.run_path(str(ROOT / "scripts/docs/command_lines.py"))["commands"]())
    finally:
        sys.path.pop(0)


COMMANDS = {" ".join(command.words): command for command in _commands()}

# Arguments that a command needs in addition to the options under test.
NEEDED = {
    "bench run": ["127.0.0.1:1"],
    "bench models": ["/no/such/results"],
    "bench plan": ["/no/such/results", "--rate", "1k", "--p99", "1ms"],
    "bench report": ["/no/such/results"],
    "cluster add": ["--cluster", "memcached://a", "one"],
    "cluster cancel": ["memcached://a"],
    "cluster demote": ["--cluster", "memcached://a", "key"],
    "cluster drain": ["--cluster", "memcached://a", "one"],
    "cluster plan": ["--nodes", "a", "--add", "b"],
    "cluster promote": ["--cluster", "memcached://a", "key"],
    "cluster remove": ["--cluster", "memcached://a", "one"],
    "cluster replicas": ["--cluster", "memcached://a", "2"],
    "cluster resume": ["memcached://a"],
    "cluster route": ["--nodes", "a", "key"],
    "cluster show": ["memcached://a"],
    "proxy": ["--nodes", "a"],
    "shell": ["127.0.0.1:1", "version"],
}
NUMBERS = ["x", "", "nan", "1e999", "0x10", "1,5"]
# Invalid values for each kind of value. Names and titles may be anything.
WRONG = {
    "NUM": NUMBERS,
    "SECONDS": NUMBERS,
    "TIME": NUMBERS,
    "PERCENT": [*NUMBERS, "0", "10001"],
    "KEY": ["", "x" * 251],
    "SIZE": NUMBERS,
    "BYTES": NUMBERS,
    "SHARE": [*NUMBERS, "2", "-1"],
    "LIST": ["", ","],
    "MASK": ["x", "9", "", "777777"],
    "ADDR": ["127.0.0.1:x", "127.0.0.1:70000", "[::1", ""],
    "URL": ["memory", "memory:", "mongodb://x", "file://", "gs://", "", "memory://?x=1"],
    "CHAR": ["ab", ""],
    "KEY=VALUE,...": ["nonsense", "idle_timeout=x", "=", ""],
    "DIST": ["20ms", "fixed:x", "x:1ms", ""],
    "HOST:PORT[=NAME]": ["x", "x:y", "x:70000", "", "=name"],
    "[NAME=]HOST:PORT": ["x:y", "x:70000", "", "=x:1"],
    "HOST:PORT,...": ["x:y", "x:70000", "", ",", "a,a"],
    "OP=SHARE,...": ["get", "get=x", "no-such=1", "", "get=-1", "get=0"],
    "STATUS=SHARE,...": ["x", "503=x", "99=0.1", "", "503=2"],
    "{}": ["", "{", "{}}"],
}
# Metavars of files and folders that must exist, which some options for written files share.
READ = {"FILE", "NAME|FILE"}
CREATED = {"--unix-socket", "--pidfile", "--memory-file"}
NOT_TO_BE_FOUND = "/no/such/file"
MISSING = {NOT_TO_BE_FOUND, "/"}
# Values that these options accept, unlike others of their kind.
FINE = {
    ("", "--user", ""),
    ("", "--extended", ""),
    ("bench compare", "--gcs-read-latency", ""),  # means none
    ("bench compare", "--gcs-write-latency", ""),
    ("bench models", "--trace", NOT_TO_BE_FOUND),  # the results do not exist either
    ("bench plan", "--workload", "no-such-choice"),  # applies to studies, and there is none
    ("bench plan", "--workload", ""),
    ("bench report", "--prices", NOT_TO_BE_FOUND),  # the results do not exist either
    ("bench report", "--prices", "/"),
    ("bench report", "--machines", NOT_TO_BE_FOUND),
    ("bench report", "--machines", "/"),
    ("cluster plan", "--hash-tag", ""),
    ("cluster route", "--hash-tag", ""),
    ("proxy", "--hash-tag", ""),
    ("proxy", "--user", ""),
    ("proxy", "--extended", ""),
}


class Wrong(NamedTuple):
    """Arguments after the command, and words of which the message must contain one."""

    arguments: list[str]
    named: tuple[str, ...]


def invocations(name: str) -> Iterator[Wrong]:
    """Yield wrong arguments for a command."""
    command = COMMANDS[name]
    needed = NEEDED.get(name, [])
    for unknown in ("--no-such-option", "--no-such-option=1", "-\udcff", "--" + "x" * 10_000):
        # Without a subcommand, `bench` complains about that first.
        yield Wrong([unknown, *needed], (unknown[:10], "-?", "COMMAND"))
    for flag in command.flags:
        spelling = flag.spellings[-1]
        if spelling in ("--help", "--version", "--license"):
            continue
        yield Wrong([spelling + "s-typo", *needed], (spelling,))
        if not flag.metavar:
            if spelling.startswith("--"):
                yield Wrong([spelling + "=1", *needed], (spelling,))
            continue
        yield Wrong([spelling] if name == "shell" else [*needed, spelling], flag.spellings)
        values = [*WRONG.get(flag.metavar, ())]
        if flag.choices and flag.metavar not in WRONG and not flag.paths:
            values += ["no-such-choice", ""]
        if flag.metavar in READ and spelling not in CREATED:
            values += [NOT_TO_BE_FOUND, "/"]
        for value in values:
            if (name, spelling, value) not in FINE:
                named = (*flag.spellings, spelling.strip("-"), value or spelling)
                words = [spelling, value]
                # Words after the shell's address are sent; elsewhere, the last value counts.
                yield Wrong(words + needed if name == "shell" else needed + words, named)
    if needed and name != "shell":
        yield Wrong([], ("required", "needs", *needed))
    if not command.arguments:
        yield Wrong([*needed, "no-such-argument"], ("no-such-argument",))
    if command.arguments == "COMMAND":
        yield Wrong([], ("COMMAND", "command"))
        yield Wrong(["no-such-command"], ("no-such-command",))


def test_many_invocations_are_generated() -> None:
    assert sum(len(list(invocations(name))) for name in COMMANDS) > 150


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ran(*arguments: object, **more: object) -> int:
        raise AssertionError("it ran")

    monkeypatch.setattr("socket.socket.bind", ran)
    monkeypatch.setattr("memlite.loadtest.command.run", ran)
    monkeypatch.setattr("asyncio.run", ran)
    monkeypatch.setattr("asyncio.Runner.run", ran)
    monkeypatch.setattr("memlite.core.logs.configure", lambda *_: None)  # of this process
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_invocations(name: str, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    failed = []
    for arguments, named in invocations(name):
        line = [*name.split(), *arguments]
        try:
            code: object = program.main(line)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any exception is reported
            code = repr(error)
        output, errors = capfd.readouterr()
        problems = [
            problem
            for problem, found in (
                (
                    f"exit code {code}",
                    code not in ((64, 71) if set(arguments) & MISSING else (64,)),
                ),
                ("output", output),
                ("not one line", errors.count("\n") != 1),
                ("not memlite's", not errors.startswith("memlite: ")),
                ("what is wrong is not named", not any(word in errors for word in named)),
                ("long", len(errors) > 800),
                ("a traceback", "Traceback" in errors or "Error(" in errors),
            )
            if found
        ]
        if problems:
            failed.append((" ".join(line)[:100], problems, errors[:300]))
    assert not failed, "\n".join(map(str, failed))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("nothing_runs")
def test_wrong_variables(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = []
    for option in OPTIONS:
        for value in WRONG.get(option.metavar or "", ()):
            if not value:
                continue  # equivalent to not being set
            with monkeypatch.context() as patch:
                patch.setenv(option.variable, value)
                try:
                    code: object = program.main([])
                except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
                    code = repr(error)
            errors = capfd.readouterr().err
            named = any(word in errors for word in (option.variable, option.name, value))
            if code != 64 or errors.count("\n") != 1 or not named:
                failed.append((option.variable, value, code, errors))
    assert not failed, "\n".join(map(str, failed))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["python", "-m", "memlite", "--bogus"], "memlite: option --bogus not recognized"),
        (["python", "-m", "memlite", "-p"], "memlite: option -p requires argument"),
        (["python", "-m", "memlite", "-\udcff"], "memlite: option -\\udcff not recognized"),
        (["python", "-m", "memlite", "bench", "run"], "memlite: bench: the following arguments"),
        (
            ["python", "-m", "memlite", "shell", "--timeout", "x"],
            "memlite: shell: argument --timeout",
        ),
        (["python", "-m", "memlite", "gcs-emulator", "x"], "memlite: gcs-emulator: unrecognized"),
        (["python", "-m", "memlite", "cluster", "rote"], "memlite: cluster: argument COMMAND"),
        (["./scripts/serve", "--backend", "memory"], "memlite: --backend: not a URL: 'memory'"),
        (["./scripts/shell", "--no-such"], "memlite: shell: unrecognized arguments: --no-such"),
        (["./scripts/bench", "compare", "--clients", "x"], "memlite: bench: argument --clients"),
        (["./scripts/gcp-up", "--no-such"], "gcp-up: --no-such: unknown option"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_wrong_invocations_of_real_programs(words: list[str], says: str) -> None:
    if words[0] == "python":
        words = [sys.executable, *words[1:]]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 64, done.stderr
    assert done.stdout == ""
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
