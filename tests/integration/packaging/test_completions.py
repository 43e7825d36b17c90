"""The completions and the man page: up to date, and understood by shells and man."""

import contextlib
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlite.config import OPTIONS
from tests.support.paths import ROOT

SHARE = ROOT / "share"
BASH = SHARE / "bash-completion" / "completions" / "memlite"
ZSH = SHARE / "zsh" / "site-functions" / "_memlite"
FISH = SHARE / "fish" / "vendor_completions.d" / "memlite.fish"
MAN = SHARE / "man" / "man1" / "memlite.1"

# The words typed before TAB, and all completions offered.
CASES = [
    (["be"], {"bench"}),
    (["--near-cache"], {"--near-cache", "--near-cache-ttl"}),
    (["-B", "a"], {"auto", "ascii"}),
    (["--durability", ""], {"always", "everysec", "none"}),
    (["-p", ""], set()),
    (
        ["bench", ""],
        {
            *(
                "compare",
                "factorial",
                "models",
                "multigets",
                "launcher",
                "plan",
                "report",
                "run",
                "study",
            ),
            "workload",
        },
    ),
    (["bench", "run", "--arr"], {"--arrivals"}),
    (["bench", "compare", "--arrivals", ""], {"constant", "poisson"}),
    (["bench", "workload", "ycsb-"], {f"ycsb-{letter}" for letter in "abcdef"}),
    (["bench", "report", "LIC"], {"LICENSE"}),
    (["gcs-emulator", "--outage", ""], {"503", "reset", "hang"}),
    (["shell", "--ke"], {"--key"}),
    (["shell", "localhost", "incr"], {"incr"}),
]


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


def run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=30)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout


@pytest.mark.parametrize("script", ["write_completions.py", "write_man_page.py"])
def test_the_files_are_up_to_date(script: str) -> None:
    written = subprocess.run([sys.executable, ROOT / "scripts" / "docs" / script, "--check"])
    assert written.returncode == 0, f"run scripts/docs/{script}"


@needs("bash")
def test_bash() -> None:
    lines = [f"source {BASH}"]
    for words, _ in CASES:
        typed = " ".join(f"'{word}'" for word in words)
        lines.append(f"COMP_WORDS=(memlite {typed}) COMP_CWORD={len(words)}")
        lines.append('_memlite; echo "${COMPREPLY[*]}"')
    # bash splits --durability=al like this.
    lines.append("COMP_WORDS=(memlite --durability = al) COMP_CWORD=3")
    lines.append('_memlite; echo "${COMPREPLY[*]}"')
    *offered, last = run("bash", "--norc", "-c", "\n".join(lines)).splitlines()
    assert [set(line.split()) for line in offered] == [expected for _, expected in CASES]
    assert last == "always"


@needs("shellcheck")
def test_shellcheck_finds_nothing_in_the_completion_for_bash() -> None:
    run("shellcheck", "--shell=bash", str(BASH))


@needs("fish")
def test_fish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    lines = [f"source {FISH}"]
    lines += [f"complete -C 'memlite {' '.join(words)}'; echo ." for words, _ in CASES]
    offered = run("fish", "--no-config", "-c", "\n".join(lines)).split(".\n")
    found = [{line.split("\t")[0] for line in text.splitlines()} for text in offered[:-1]]
    assert found == [expected for _, expected in CASES]


# zsh shows several words as a list, which is hard to parse: each case has one completion.
ZSH_CASES = [
    ("memlite be", "memlite bench "),
    ("memlite --dura", "memlite --durability="),
    ("memlite -B as", "memlite -B ascii "),
    ("memlite --durability=al", "memlite --durability=always "),
    ("memlite bench wor", "memlite bench workload "),
    ("memlite bench run --arr", "memlite bench run --arrivals="),
    ("memlite bench compare --arrivals p", "memlite bench compare --arrivals poisson "),
    ("memlite bench workload multi", "memlite bench workload multiget "),
    ("memlite bench report LIC", "memlite bench report LICENSE "),
    ("memlite gcs-emulator --outage h", "memlite gcs-emulator --outage hang "),
    ("memlite shell --cac", "memlite shell --cacert="),
    ("memlite shell localhost inc", "memlite shell localhost incr "),
]

# A dedicated key prints the current line.
ZSH_SETUP = """\
PS1= PS2= RPS1=; unsetopt prompt_cr prompt_sp
fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D
shown() {{ print -r -- "<$BUFFER>"; BUFFER=; }}
zle -N shown; bindkey '^I' complete-word; bindkey '^X' shown; print set-$((1 + 1))
"""


@contextlib.contextmanager
def zsh(folder: Path) -> Iterator[int]:
    """Run an interactive zsh that has loaded the completion; yield its terminal."""
    terminal, inner = pty.openpty()
    child = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder)},
        start_new_session=True,
    )
    os.close(inner)
    try:
        os.write(terminal, ZSH_SETUP.format(folder=ZSH.parent).encode())
        shown_by(terminal, "set-2")
        yield terminal
    finally:
        child.kill()
        child.wait()
        os.close(terminal)


def shown_by(terminal: int, pattern: str) -> str:
    """Wait until the terminal shows the pattern; return its last group."""
    received, deadline = "", time.monotonic() + 30
    while not (found := re.search(pattern, received)):
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, received
        received += os.read(terminal, 65536).decode(errors="replace")
    return found[found.lastindex or 0]


@needs("zsh")
def test_zsh(tmp_path: Path) -> None:
    with zsh(tmp_path) as terminal:
        for typed, completed in ZSH_CASES:
            os.write(terminal, typed.encode() + b"\t\x18")
            assert shown_by(terminal, "<(.*)>") == completed


def test_the_man_page_names_every_option() -> None:
    text = MAN.read_text().replace("\\-", "-")
    for option in OPTIONS:
        assert f"--{option.name}" in text
        assert option.variable in text


@needs("groff")
def test_groff_has_no_warnings_about_the_man_page() -> None:
    assert "memlite" in run("groff", "-man", "-ww", "-Tutf8", str(MAN))
