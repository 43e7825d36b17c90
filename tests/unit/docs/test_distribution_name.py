"""No file tells users to install the unrelated project that owns ``memlite`` on PyPI."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXTRAS = "|".join(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
INSTALLERS = r"(?:pip3?|pipx|uv|uvx|poetry) (?:install|add|run|download)(?: +-\S+)*"
OLD_NAME = re.compile(
    "|".join(
        (
            # Requirements: memlite[gcs], memlite==1.0, memlite @ git+https://…
            rf"(?<![\w/.-])memlite\\*\[(?:{EXTRAS})\b",
            r"(?<![\w/.-])memlite(?:[=~<>!]=| *@ *(?:git|https?|file)\b)",
            # Commands: pip install -U memlite, uv add memlite
            rf"{INSTALLERS} +['\"]?memlite(?![\w/.-])",
            # Files: memlite-0.1.0-py3-none-any.whl, memlite-0.1.0.tar.gz
            r"(?<![\w.-])memlite-[^\s/'\"`]*\.(?:whl|tar\.gz)",
            # Metadata
            r"metadata\.\w+\(['\"]memlite['\"]\)",
            r"Requires-Dist: memlite\b(?!-)",
            r"^name = \"memlite\"",
        )
    ),
    re.MULTILINE,
)


@pytest.mark.parametrize(
    "text",
    [
        "pip install memlite",
        "pip install 'memlite[gcs]'",
        "python -m pip install --upgrade memlite\n",
        "needs memlite[bench,shell]",
        r"pip install 'memlite\[gcs\]'",
        "memlite==0.1.0",
        "'memlite @ git+https://example.com/memlite.git'",
        "$root/dist/memlite-0.1.0-py3-none-any.whl",
        '"memlite-*.whl"',
        'metadata.version("memlite")',
        "Requires-Dist: memlite",
        '[project]\nname = "memlite"\n',
    ],
)
def test_the_pattern_matches_uses_of_the_old_name(text: str) -> None:
    assert OLD_NAME.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install 'memlite-cache[gcs]'",
        "memlite-cache==0.1.0",
        "memlite_cache-0.1.0-py3-none-any.whl",
        "pip install --target /opt/memlite/bin x",
        "git+https://example.com/memlite.git@v0.1.0",
        'kinds["memlite"]',
        "Requires-Dist: memlite-cache",
    ],
)
def test_the_pattern_does_not_match_other_text(text: str) -> None:
    assert not OLD_NAME.search(text)


def test_no_file_uses_the_old_name() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        file = ROOT / name
        if file == Path(__file__) or not file.is_file():
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # an image
            continue
        found += [f"{name}: {match[0]}" for match in OLD_NAME.finditer(text)]
    assert found == []
