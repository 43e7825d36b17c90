"""``scripts/serve --compiled``: a compiled build is made once, until its sources change."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

# Stands in for Python: prints the location of modules and the command it would run, and creates the
# wheel in place of pip.
STANDIN = """#!/bin/sh
case "$*" in
    *get_path*) echo "$INCLUDE" ;;
    -VV) echo Python ;;
    -c*) ;;
    *"pip wheel"*)
        echo "compiled=$MEMLITE_COMPILED $PWD" >>"$BUILDS"
        [ -z "$FAILS" ] || exit 1
        mkdir wheel && echo >wheel/memlite.whl ;;
    *zipfile*) mkdir "$5" ;;
    *) echo "$PYTHONPATH|$*" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name in ("scripts", "requirements", "share"):
        shutil.copytree(ROOT / name, root / name)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root)
    (root / "memlite").mkdir()
    (root / "memlite" / "one.py").write_text("one = 1\n")
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STANDIN)
    python.chmod(0o755)
    (tmp_path / "Python.h").touch()
    return root


def serve(checkout: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    folder = checkout.parent
    names = {
        "PATH": "/usr/bin:/bin", "PYTHON": str(checkout / ".venv" / "bin" / "python"),
        "CC": "sh", "INCLUDE": str(folder), "BUILDS": str(folder / "builds"),
    }  # fmt: skip
    return subprocess.run(
        [checkout / "scripts" / "serve", *arguments],
        cwd=folder,
        env=names | environ,
        capture_output=True,
        text=True,
        timeout=60,
    )


def builds(checkout: Path) -> list[str]:
    file = checkout.parent / "builds"
    return file.read_text().splitlines() if file.exists() else []


def test_it_is_built_once_until_sources_change(checkout: Path) -> None:
    first, second = serve(checkout, "--compiled", "-p", "1"), serve(checkout, "--compiled")
    assert first.returncode == second.returncode == 0, first.stderr
    folder, _, ran = first.stdout.splitlines()[-1].partition("|")
    assert ran == "-m memlite -p 1"
    assert Path(folder).is_dir()
    assert second.stdout == f"{folder}|-m memlite\n"
    (built,) = builds(checkout)
    assert built.startswith("compiled=1 ")
    assert not built.endswith(str(checkout))  # the checkout stays pure Python
    (checkout / "memlite" / "one.py").write_text("one = 2\n")
    third = serve(checkout, "--compiled")
    assert len(builds(checkout)) == 2
    assert third.stdout != second.stdout
    # A server may still be running from the first build.
    assert {str(one) for one in (checkout / ".venv").glob("compil*")} == {
        run.stdout.splitlines()[-1].partition("|")[0] for run in (first, third)
    }


def test_without_the_option_nothing_is_compiled(checkout: Path) -> None:
    assert serve(checkout, "-p", "1").stdout.splitlines()[-1] == "|-m memlite -p 1"
    assert builds(checkout) == []


@pytest.mark.parametrize("missing", [{"CC": "no-such-compiler"}, {"INCLUDE": "/nowhere"}])
def test_a_compiler_and_headers_are_needed(checkout: Path, missing: dict[str, str]) -> None:
    run = serve(checkout, "--compiled", **missing)
    assert run.returncode == 1
    assert "needs a C compiler and Python's headers" in run.stderr
    assert builds(checkout) == []


def test_a_build_that_fails_leaves_nothing(checkout: Path) -> None:
    run = serve(checkout, "--compiled", FAILS="1")
    assert run.returncode == 1
    assert "The compiled build failed" in run.stderr
    assert list((checkout / ".venv").glob("compil*")) == []
    assert serve(checkout, "--compiled").returncode == 0
