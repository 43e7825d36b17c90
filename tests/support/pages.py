"""The pages of the documentation, and the blocks of commands and code in them."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "terraform" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)

PROMPT = r"[\w.-]+:\d+> "
"""The shell's prompt, as a regular expression."""

COMMANDS = ("sh", "python", "memcached")
FILES = ("text", "toml", "ini", "json", "csv", "hcl", "yaml")

_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        line: the number of its first line in the page.
        language: what follows the fence.
        text: its lines.
        note: the comment on the line before it, which says how it is tested; "" if there is none.
    """

    line: int
    language: str
    text: str
    note: str = ""

    @property
    def is_session(self) -> bool:
        """Whether it shows commands at the shell's prompt, with the replies."""
        return self.language == "text" and re.match(PROMPT, self.text) is not None

    @property
    def can_be_run(self) -> bool:
        """Whether it holds commands, code or a conversation rather than a file or output."""
        return self.is_session or self.language in COMMANDS


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            found["text"],
            found["note"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def texts(page: Path, language: str) -> list[str]:
    """Return the text of the blocks in one language."""
    return [block.text for block in blocks(page) if block.language == language]


def commands(text: str) -> list[str]:
    """Return the commands of a block: its lines, joined where a backslash continues them."""
    return re.split(r"(?<!\\)\n", text.rstrip("\n"))


def inline_commands(page: Path) -> list[str]:
    """Return the commands in running text that start servers, except those with placeholders."""
    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    spans = re.findall(r"`((?:memlite|\./scripts/serve)\s-[^`]+)`", prose)
    return [" ".join(span.split()) for span in spans if not re.search(r"[<…\[]|\boptions\b", span)]
