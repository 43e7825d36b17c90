"""What holds for all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says more about the machine, and what is imported only then, than about
# what is tested.
settings.register_profile("memlite", deadline=None)
settings.load_profile("memlite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--marked", metavar="MARK", help="collect only the files in which this mark is used"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files without the mark: selecting by ``-m`` alone would import every one of them."""
    mark = config.getoption("--marked")
    if mark is None or collection_path.suffix != ".py":
        return None
    return f"mark.{mark}" not in collection_path.read_text(encoding="utf-8") or None
