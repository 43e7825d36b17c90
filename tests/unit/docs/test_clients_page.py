"""The page on clients lists the tested versions, which equal the locked versions."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "clients.md").read_text()
CLIENTS = ROOT / "scripts" / "clients"


def rows(heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading, without its header."""
    part = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("row", rows("Python"), ids=lambda row: row[0])
def test_python_libraries(row: list[str]) -> None:
    name, version, *_ = row
    locks = "".join(
        (ROOT / "requirements" / lock).read_text() for lock in ("test.txt", "pylibmc.txt")
    )
    assert f"\n{name}=={version} " in locks


def test_libraries_of_other_languages() -> None:
    libraries = runpy.run_path(str(CLIENTS / "client_libraries.py"))["LIBRARIES"]
    assert rows("Other languages") == [
        [library.name, library.language, library.version, protocol, ", ".join(ways)]
        for library in libraries
        for protocol, ways in library.uses.items()
    ]


def test_libraries_are_locked_by_digest() -> None:
    """This applies to languages that support it; all packages come from public registries."""
    lock = (CLIENTS / "node" / "package-lock.json").read_text()
    assert lock.count('"integrity": "sha512-') == lock.count('"node_modules/') == 1
    required = re.findall(
        r"^\t(github\S+ v\S+)$", (CLIENTS / "go" / "go.mod").read_text(), re.MULTILINE
    )
    assert required
    for library in required:
        assert f"{library} h1:" in (CLIENTS / "go" / "go.sum").read_text()
    hosts = {
        host
        for file in CLIENTS.rglob("*")
        if file.is_file()
        for host in re.findall(r"https?://([^/\"\s<]+)", file.read_text())
    }
    assert hosts <= {"maven.apache.org", "rubygems.org", "registry.npmjs.org"}
