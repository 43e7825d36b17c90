"""The distribution's name, and the message for a missing extra."""

import tomllib
from pathlib import Path

import pytest

from memlite.core.package_name import DISTRIBUTION, not_installed

ROOT = Path(__file__).parents[3]


def test_the_name_equals_that_in_pyproject() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION


def test_the_message_names_the_package_and_the_command() -> None:
    error = ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp")
    assert not_installed(error, "gcs") == (
        "aiohttp is not installed: pip install 'memlite-cache[gcs]'"
    )


@pytest.mark.parametrize("name", ["memlite", "memlite.nothing", None])
def test_a_missing_module_of_memlite_is_not_reported_as_a_missing_extra(name: str | None) -> None:
    error = ModuleNotFoundError("no such module", name=name)
    with pytest.raises(ModuleNotFoundError) as raised:
        not_installed(error, "gcs")
    assert raised.value is error


def test_a_package_with_a_similar_name_is_not_memlite() -> None:
    assert "memlite_sqlite is not" in not_installed(
        ModuleNotFoundError(name="memlite_sqlite"), "gcs"
    )
