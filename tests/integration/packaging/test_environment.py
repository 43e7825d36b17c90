"""``scripts/lib/environment.sh`` does not install packages again."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

NAMES = ["serve", "gcs", "valkey", "bench", "shell"]


def locked(name: str) -> set[str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    return set(re.findall(r"^[a-z0-9].*==[^ ]+", text, re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_the_lock_file_of_the_tests_contains_all_others(name: str) -> None:
    assert locked(name)
    assert locked(name) <= locked("test")


# Stands in for the interpreters: runs nothing, and installs nothing.
STANDIN = '#!/bin/sh\n[ "$1" = -c ] || echo "$@"\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STANDIN)
    python.chmod(0o755)
    return tmp_path


def run(
    checkout: Path, program: str, python: str = ".venv/bin/python"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euc", f'. "{ROOT}/scripts/lib/environment.sh"; {program}'],
        cwd=checkout,
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(checkout / python)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_is_installed_once(checkout: Path, name: str) -> None:
    first = run(checkout, f"environment {name}")
    assert f"--requirement requirements/{name}.txt" in first.stdout
    assert "Installing" in first.stderr
    again = run(checkout, f"environment {name}")
    assert again.stdout == again.stderr == ""


@pytest.mark.parametrize("name", NAMES)
def test_all_scripts_can_use_an_environment_for_tests(checkout: Path, name: str) -> None:
    run(checkout, "environment test")
    then = run(checkout, f"environment {name}")
    assert then.stdout == then.stderr == ""
    with (checkout / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert "Installing" in run(checkout, f"environment {name}").stderr


def test_an_environment_without_pip_is_recreated(checkout: Path) -> None:
    """A failed or interrupted creation leaves such an environment."""
    maker = checkout / "python"
    maker.write_text(
        STANDIN + '[ "$2" != venv ] || { mkdir -p .venv/bin && cp "$0" .venv/bin/python; }\n'
    )
    maker.chmod(0o755)
    (checkout / ".venv" / "bin" / "python").write_text(
        '#!/bin/sh\nexpr "$2" : "import pip" && exit 1\nexit 0\n'
    )
    (checkout / ".venv" / "left").touch()
    assert "-m venv .venv" in run(checkout, "environment serve", "python").stdout
    assert not (checkout / ".venv" / "left").exists()


def test_an_environment_that_works_is_kept(checkout: Path) -> None:
    """`python3` may be a different version by now."""
    assert "-m venv" not in run(checkout, "environment serve").stdout
