"""Runs of the ``memlite`` program that end by themselves."""

import os
import subprocess
import sys

__all__ = ["run"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``memlite`` to its end.

    Args:
        arguments: of the command line.
        environment: variables set in addition to those of this process.
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
