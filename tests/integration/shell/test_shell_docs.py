"""The how-to page about the shell: its sessions, commands and options are correct."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memlite.shell.options import parse
from tests.support.paths import ROOT
from tests.support.servers import RunningServer, running

PAGE = (ROOT / "docs" / "how-to" / "use-the-shell.md").read_text()
PROMPT = "localhost:11211> "


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


CONVERSATIONS = [text for text in blocks("text") if text.startswith(PROMPT)]


def talk(conversation: str, server: RunningServer) -> None:
    """Type the lines of the page's sessions, and compare everything that is shown."""
    typed, shown = [], []
    for line in conversation.splitlines():
        by_person = re.match(rf"{PROMPT}|\d+ bytes> ", line)
        if by_person:
            typed.append(line[by_person.end() :])
        else:
            shown.append(line)
    run = subprocess.run(
        [sys.executable, "-m", "memlite", "shell", f"127.0.0.1:{server.port}"],
        input="\n".join(typed),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert run.stdout.splitlines() == shown
    assert run.stderr == ""


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_sessions(conversation: str) -> None:
    assert len(CONVERSATIONS) >= 3
    with running("memlite") as server:
        talk(conversation, server)


def test_commands(memlite: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(b"<html>\n\xff")
    program = tmp_path / "memlite"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memlite "$@"\n')
    program.chmod(0o755)
    outputs = []
    for text in blocks("sh"):
        run = subprocess.run(
            ["bash", "-ec", "set -o pipefail\n" + text.replace(":11211", f":{memlite.port}")],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
                 "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=60,
        )  # fmt: skip
        assert (run.returncode, run.stderr) == (0, b"")
        outputs.append(run.stdout)
    assert (tmp_path / "copy.html").read_bytes() == b"<html>\n\xff"
    assert outputs[0].startswith(b"STORED\ngreeting: 11 bytes, flags 0\nhello world\nSTORED\n")
    assert outputs[0].endswith(b"NOT_STORED\n")
    assert outputs[1].startswith(b'{"items": [{"key": "greeting", "flags": 0, "cas": ')
    assert outputs[2].count(b" samples)\n") == 2
    assert outputs[2].count(b" MB ") == 2
    assert outputs[3] == b"STORED\na: 1 byte, flags 0\nx\nSTORED\nx\nquoted"


def test_other_command_lines_are_valid() -> None:
    lines = [line for text in blocks("text") for line in text.splitlines()
             if line.startswith("memlite shell")]  # fmt: skip
    assert len(lines) >= 7
    for line in lines:
        assert parse(line.partition("  #")[0].split()[2:])


def test_options(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert parse(["--help"]) is None
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    _, _, table = PAGE.partition("## Options")
    assert set(re.findall(r"--[a-z-]+", table)) - {"---"} == set(
        re.findall(r"(?m)^  (?:-\w(?: [A-Z]+)?, )?(--[a-z-]+)", text)
    )
    options = parse([])
    assert options
    assert (options.timeout, options.value_length) == (5, 64 * 1024**2)
