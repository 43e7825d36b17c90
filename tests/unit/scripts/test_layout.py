"""The layout of scripts/: commands at the top level, their helpers in folders."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "scripts"
COMMANDS = {
    "bench", "gcp-bench", "gcp-down", "gcp-up", "lock", "serve", "shell", "test", "test-compiled",
}  # fmt: skip


def test_the_top_level_has_only_commands() -> None:
    files = [file for file in SCRIPTS.iterdir() if file.is_file()]
    assert {file.name for file in files} == COMMANDS
    assert all(os.access(file, os.X_OK) for file in files)


def test_paths_of_scripts_exist() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    missing = []
    for name in filter(None, listed.stdout.split("\0")):
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        for path in re.findall(r"(?<![\w/])(?:\./)?(scripts/\w[\w./-]*+)(?![*{])", text):
            file = ROOT / path.rstrip(".")
            if not file.exists():
                missing.append(f"{name}: {path}")
    assert missing == []
