"""Every runnable block of the documentation is run as printed, or states why it is not."""

import re
import shlex
from pathlib import Path

import pytest

from memlite.cluster.command import command_line as cluster
from memlite.config import load
from memlite.loadtest.options import parse as parse_bench
from memlite.proxy.options import command_line as proxy
from memlite.shell.options import parse as parse_shell
from memlite.top.options import parse as parse_top
from tests.support.following import follow
from tests.support.pages import COMMANDS, FILES, PAGES, Block, blocks, commands, inline_commands
from tests.support.paths import ROOT
from tests.support.reader import SLOW, is_read

REASONS = {
    "figures differ from run to run",
    "installs packages",
    "is the run of the tests itself",
    "names servers or files of yours",
    "needs a cluster",
    "needs a container engine",
    "needs a Google Cloud project",
    "needs root",
    "never ends by itself",
    "takes minutes",
}
# The pages that newcomers follow first; the fast suite follows them too.
FIRST = ("README.md", "docs/tutorial.md")
# Output of blocks, where the page only describes it. Sessions show theirs, and are compared.
PRINTED = {
    "docs/how-to/use-the-shell.md": (
        r"STORED\ngreeting: 11 bytes, flags 0\nhello world\nSTORED\n(?s:.*)\nNOT_STORED\n"
        r'\{"items": \[\{"key": "greeting", "flags": 0, "cas": (?s:.*)\n\d+\n'
        r"(?s:.* samples\)\n.* samples\)\n.* MB .* MB .*)\n"
        r"STORED\na: 1 byte, flags 0\nx\nSTORED\nx\nquoted"
    )
}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def takes_time(page: Path) -> bool:
    """Return whether a page has a block that only the slow suite runs."""
    return any(is_read(block, slow=True) and block.note == SLOW for block in blocks(page))


def pages(*, slow: bool) -> list[Path]:
    """Return the pages to follow, with slow blocks or without.

    With slow blocks, the rest of the page is run as well, so slow tests follow no page twice.
    """
    return [
        page
        for page in PAGES
        if any(is_read(block, slow) for block in blocks(page))
        and (takes_time(page) == slow or (name(page) in FIRST and not slow))
    ]


def test_a_page_is_followed_once_or_belongs_to_the_fast_suite() -> None:
    fast, slow = pages(slow=False), pages(slow=True)
    assert {name(page) for page in {*fast} & {*slow}} <= {*FIRST}
    read = {page for page in PAGES if any(is_read(block, slow=True) for block in blocks(page))}
    assert {*fast, *slow} == read


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if name(page) in FIRST else pytest.mark.slow)
        for page in pages(slow=False)
    ],
    ids=name,
)
def test_newcomers_can_follow_it(page: Path) -> None:
    printed = "".join(follow(page))
    assert re.search(PRINTED.get(name(page), ""), printed), printed


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", pages(slow=True), ids=name)
def test_newcomers_with_time_can_follow_it(page: Path) -> None:
    follow(page, "slow")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_each_block_is_run_or_states_a_reason(page: Path) -> None:
    for block in blocks(page):
        assert problem(page, block) == "", f"{name(page)}:{block.line}"


def problem(page: Path, block: Block) -> str:
    """Return the problem with the way a block is tested, or ""."""
    if block.language not in (*COMMANDS, *FILES):
        return f"commands are declared as one of {COMMANDS}, files as one of {FILES}"
    if not block.can_be_run:
        hidden = re.search(r"(?m)^\$ |^(?:\./scripts/|memlite |pip |sudo |python )", block.text)
        return f"{hidden[0]!r} is a command: declare the block as sh" if hidden else ""
    if block.note.startswith("not run: "):
        reason = block.note.removeprefix("not run: ")
        return "" if reason in REASONS else f"{reason!r} is none of {sorted(REASONS)}"
    if block.note.startswith("run by tests/"):
        file, _, test = block.note.removeprefix("run by ").partition("::")
        text = (ROOT / file).read_text()
        ran = page.name in text and (not test or f"def {test}(" in text)
        return "" if ran else f"{block.note}: there is no such test, or not of {page.name}"
    return "" if block.note in ("", SLOW) else f"what does {block.note!r} mean?"


@pytest.mark.parametrize(
    "block",
    [
        Block(1, "sh", "memlite\n", "not run: no idea"),
        Block(1, "sh", "memlite\n", "run by tests/conftest.py::test_nothing"),
        Block(1, "python", "1 + 1\n", "see below"),
        Block(1, "text", "$ memlite\n"),
        Block(1, "bash", "memlite -p 1\n"),
        Block(1, "text", "pip install memlite-cache\n"),
    ],
    ids=lambda block: block.note or block.text.strip(),
)
def test_blocks_without_a_test_or_a_reason_are_found(block: Block) -> None:
    assert problem(ROOT / "README.md", block)


def test_every_fence_is_understood() -> None:
    for page in PAGES:
        fences = re.findall(r"(?m)^\s*(?:```|~~~)", page.read_text())
        assert len(fences) == 2 * len(blocks(page)), name(page)


PARSERS = {
    "memlite": lambda words: load(words, {}),
    "memlite cluster": cluster().parse_args,
    "memlite proxy": lambda words: load(proxy().parse_known_args(words)[1], {}),
    "./scripts/serve": lambda words: load(words[words[:1] == ["--compiled"] :], {}),
    "memlite bench": parse_bench,
    "./scripts/bench": parse_bench,
    "memlite shell": parse_shell,
    "./scripts/shell": parse_shell,
    "memlite top": parse_top,
}
ELSEWHERE = ("gcs-emulator", "--help", "--version")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_are_not_run_are_valid_too(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("memlite.toml").touch()
    for block in blocks(page):
        if block.language == "sh":
            for command in commands(block.text):
                check(command)
    for command in inline_commands(page):
        check(command)


def check(command: str) -> None:
    """Parse a command, if it is one of ours, as the program would."""
    words = shlex.split(re.split(r" [|<>&] ?", command)[0], comments=True)
    if not words or set(words) & set(ELSEWHERE):
        return
    for length in (2, 1):
        if parse := PARSERS.get(" ".join(words[:length])):
            assert parse(words[length:]), command
            return
