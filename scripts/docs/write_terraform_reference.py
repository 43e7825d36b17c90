"""Write the tables at the end of terraform/README.md; ``--check`` only compares them.

Run it after changing a variable or an output::

    python3 scripts/docs/write_terraform_reference.py
"""

import re
import sys
import textwrap
from pathlib import Path

MODULE = Path(__file__).parents[2] / "terraform"
PAGE = MODULE / "README.md"
MARK = "<!-- From here on written by scripts/docs/write_terraform_reference.py;"


def page() -> str:
    """Return the text of the page."""
    head, mark, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"{PAGE}: missing line {MARK}")
    mark += rest.splitlines()[0]
    variables = _blocks("variable", MODULE / "variables.tf")
    outputs = _blocks("output", MODULE / "outputs.tf")
    rows = [
        f"| `{name}` | {_type(body)} | {_default(body)} | {_description(body)} |"
        for name, body in variables.items()
    ]
    shapes = [
        f"`{name}`:\n\n```hcl\n{_attribute(body, 'type')}\n```\n"
        for name, body in variables.items()
        if "\n" in _attribute(body, "type")
    ]
    return "\n".join(
        (
            head + mark,
            "\n## Variables\n",
            "| variable | type | default | |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            *shapes,
            "## Outputs\n",
            "| output | |",
            "| --- | --- |",
            *(f"| `{name}` | {_description(body)} |" for name, body in outputs.items()),
            "",
        )
    )


def _blocks(kind: str, file: Path) -> dict[str, str]:
    """Return the blocks of a file by name; the file must be formatted by ``tofu fmt``."""
    text = file.read_text(encoding="utf-8")
    return dict(re.findall(rf'^{kind} "(\w+)" {{\n(.*?)^}}', text, re.MULTILINE | re.DOTALL))


def _attribute(body: str, name: str) -> str:
    """Return the text of an attribute, up to the next line at the block's indentation."""
    found = re.search(rf"^  {name} += (.*?)\n(?=  [a-z]\w* |\n|\Z)", body, re.MULTILINE | re.DOTALL)
    return textwrap.dedent("  " + found[1]).strip() if found else ""


def _description(body: str) -> str:
    text = _attribute(body, "description")
    if text.startswith("<<-END"):
        text = " ".join(text.removeprefix("<<-END").removesuffix("END").split())
    else:
        text = text.strip('"').replace('\\"', '"')
    return text.replace("|", "\\|")


def _type(body: str) -> str:
    text = _attribute(body, "type")
    return (
        "`map(object)`, below"
        if text.startswith("map(object")
        else ("`object`, below" if text.startswith("object") else f"`{text}`")
    )


def _default(body: str) -> str:
    text = _attribute(body, "default")
    return f"`{text}`" if text else "**required**"


def main() -> int:
    """Write the page, or with ``--check`` compare it."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
