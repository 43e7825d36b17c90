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

PROMPT = "localhost:11211> "

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
        """Whether it shows what is typed at the shell's prompt, with the answers."""
        return self.language == "text" and self.text.startswith(PROMPT)

    @property
    def can_be_run(self) -> bool:
        """Whether it holds commands, code or a conversation, and not a file or an output."""
        return self.is_session or self.language in ("sh", "python", "memcached")


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
    """Return the commands of a block: its lines, with those that a backslash continues."""
    return re.split(r"(?<!\\)\n", text.rstrip("\n"))
