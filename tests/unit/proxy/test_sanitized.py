"""Tests of framing in C pass under the address and undefined-behaviour sanitizers."""

from pathlib import Path

import pytest

from tests.support.sanitized import needs_sanitizers, run_sanitized


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_sanitizers
def test_framing_in_c_under_sanitizers(tmp_path: Path) -> None:
    names = ("framing", "parts", "native_connection", "flushing", "node")
    tests = [f"tests/unit/proxy/test_{name}.py" for name in names]
    run_sanitized(tmp_path, "memlite.proxy._native", *tests)
