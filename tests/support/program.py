"""Runs of the ``memlite`` program that exit by themselves."""

import os
import subprocess
import sys

from tests.support.forked import run_memlite

__all__ = ["run", "run_forked"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``memlite`` until it exits.

    Args:
        arguments: the command-line arguments.
        environment: variables to set in addition to those of this process.
    """
    return subprocess.run(
        [sys.executable, "-m", "memlite", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        check=False,
    )


def run_forked(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Do the same without starting Python: for tests of a command's effects, not of its startup."""
    done = run_memlite(*arguments, environment={**os.environ, **environment})
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )
