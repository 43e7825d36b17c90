"""Runs of commands in C do what they are tested for under sanitizers of memory and behaviour."""

from pathlib import Path

import pytest

from tests.support.sanitized import needs_sanitizers, run_sanitized


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_sanitizers
def test_runs_in_c_under_sanitizers(tmp_path: Path) -> None:
    run_sanitized(
        tmp_path, "memlite.server.execution._native", "tests/unit/server/execution/test_runner.py"
    )
