"""Runs of the ``memlite`` program that exit by themselves."""

import os
import subprocess
import sys

__all__ = ["run"]


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
