"""The how-to page about the shell lists its options."""

import re

import pytest

from memlite.shell.options import parse
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "how-to" / "use-the-shell.md").read_text()


def test_options(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert parse(["--help"]) is None
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    _, _, table = PAGE.partition("## Options")
    assert set(re.findall(r"--[a-z-]+", table)) - {"---"} == set(
        re.findall(r"(?m)^  (?:-\w(?: [A-Z]+)?, )?(--[a-z-]+)", text)
    )
    options = parse([])
    assert options
    assert (options.timeout, options.value_length) == (5, 64 * 1024**2)
