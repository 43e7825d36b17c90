"""Settings and options for all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

# The time that an example takes depends on the machine and on what has to be imported for it, more
# than on what is tested.
settings.register_profile("memlite", deadline=None)
settings.load_profile("memlite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--marked", metavar="MARK", help="collect only the files in which this mark is used"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files that do not use the mark: with ``-m`` alone pytest would import all of them."""
    mark = config.getoption("--marked")
    if mark is None or collection_path.suffix != ".py":
        return None
    return f"mark.{mark}" not in collection_path.read_text(encoding="utf-8") or None
