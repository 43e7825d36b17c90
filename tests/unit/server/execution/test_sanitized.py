"""The tests of runs in C, under the address and undefined-behaviour sanitizers."""

from pathlib import Path

import pytest

from tests.support.sanitized import needs_sanitizers, run_sanitized

# Further seeds would only exercise the same C code again.
SEEDS = (
    "([1] or [2] or -1]) and "
    "(notes or any_commands or any_binary or together or advance or without_cas) "
    "or ([1- or [2-) and (text_commands or packets)"
)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "tests", "flags", "allocator"),
    [
        ("_native", ("test_native_runner.py", "test_native_uncommon_forms.py"), (), "malloc"),
        # As in free-threaded builds, and builds whose dicts have another layout.
        ("_native", ("test_native_uncommon_forms.py",), ("-DUNKNOWN_DICTS",), "pymalloc"),
        (
            "records._native",
            ("test_shared_runner.py", "test_native_uncommon_shared_forms.py"),
            (),
            "pymalloc",
        ),
    ],
)
@needs_sanitizers
def test_runs_in_c_under_sanitizers(
    tmp_path: Path, name: str, tests: tuple[str, ...], flags: tuple[str, ...], allocator: str
) -> None:
    run_sanitized(
        tmp_path,
        f"memlite.server.execution.{name}",
        *(f"tests/unit/server/execution/{test}" for test in tests),
        without=SEEDS,
        flags=flags,
        allocator=allocator,
    )
