"""The table in C does what it is tested for under the address and undefined-behaviour sanitizers.

Not under the thread sanitizer: processes share the table, which it does not see, and a reader
copies what may be overwritten meanwhile, on purpose, and looks at the segment's generation then.
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
