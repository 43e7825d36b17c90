"""The tests of input in C, run under the address and undefined-behaviour sanitizers."""

from pathlib import Path

import pytest

from tests.support.sanitized import needs_sanitizers, run_sanitized


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_sanitizers
def test_input_in_c_under_sanitizers(tmp_path: Path) -> None:
    run_sanitized(
        tmp_path,
        "memlite.server.connections._native",
        "tests/unit/server/connections/test_native_receiver.py",
        "tests/unit/server/connections/test_turns.py",
    )
