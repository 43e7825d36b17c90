"""``memlite bench`` in this process, run as a user would run it."""

import contextlib
import io
import signal
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memlite.cli.main import main
from memlite.loadtest import launching
from tests.support.forked import fork_process

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["bench", "drawing_one_image"]


def bench(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; return its exit code and its output.

    The processes that it starts are real; servers and proxies are forked, like all servers in
    tests. A separate process would cost another second of processor time for imports, and three
    if it draws; a server that is not forked costs half a second. Tests that depend on the
    command's environment, its folder or signals need a process, though.

    All figures are created, and drawn for the page; every image but the first has the content of
    the first, because drawing both images of a figure takes twice as long. Tests in
    tests/unit/loadtest draw every image.
    """
    words = ["bench", *map(str, arguments)]
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    said, complained = io.StringIO(), io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(complained),
            _forking(),
            drawing_one_image(),
        ):
            code = main(words)
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
    return subprocess.CompletedProcess(words, code, said.getvalue(), complained.getvalue())


@contextlib.contextmanager
def _forking() -> Iterator[None]:
    """Make the load tester fork the servers and proxies that it starts."""
    before = launching._start
    launching._start = fork_process
    try:
        yield
    finally:
        launching._start = before


@contextlib.contextmanager
def drawing_one_image() -> Iterator[None]:
    """Draw the figures of pages, and give all images the content of the first."""
    from memlite.loadtest.report import page

    before = page.png
    images: list[bytes] = []

    def png(figure: "Figure") -> bytes:
        if not images:
            images.append(before(figure))
        return images[0]

    page.png = png
    try:
        yield
    finally:
        page.png = before
