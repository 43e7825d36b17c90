"""docs/reference/logs.md lists every event, with its level and fields."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "logs.md"
LEVELS = {"exception": "error"}


def calls(path: Path) -> list[tuple[str, str, set[str]]]:
    """Return the events that a module logs at a limited rate: name, level and fields."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        for keyword in node.keywords:
            call = keyword.value
            if keyword.arg != "extra" or not isinstance(call, ast.Call):
                continue
            assert isinstance(call.func, ast.Name)
            if not call.func.id.endswith("failure"):
                continue
            (name,) = call.args
            assert isinstance(name, ast.Constant)
            level = LEVELS.get(node.func.attr, node.func.attr)
            found.append((str(name.value), level, {str(one.arg) for one in call.keywords}))
    return found


def test_every_event_is_listed() -> None:
    levels: dict[str, set[str]] = defaultdict(set)
    fields: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "memlite").rglob("*.py"):
        for name, level, of_call in calls(path):
            levels[name].add(level)
            fields[name] |= of_call
    assert len(levels) > 20
    rows = re.findall(r"(?m)^\| `(\w+)` \| ([a-z, ]+) \| (.*?) ?\| ", PAGE.read_text())
    listed = {name: set(found.split(", ")) for name, found, _ in rows}
    assert listed == levels
    assert {name: set(re.findall(r"\w+", text)) for name, _, text in rows} == {
        name: fields[name] for name in levels
    }
