"""The tests of the table in C, under the address and undefined-behaviour sanitizers.

The thread sanitizer is not used: it does not see that processes share the table, and a reader
deliberately copies data that may be overwritten meanwhile, then checks the segment's generation.
"""

from pathlib import Path

import pytest

from tests.support.sanitized import needs_sanitizers, run_sanitized


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_sanitizers
def test_the_table_in_c_under_sanitizers(tmp_path: Path) -> None:
    tests = ("tests/unit/memory/shared/test_twins.py", "tests/unit/engine/test_shared_plain.py")
    run_sanitized(tmp_path, "memlite.memory.shared._native", *tests)
