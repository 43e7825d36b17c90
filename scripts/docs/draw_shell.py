"""Draw docs/images/shell.png: a session of ``memlite shell`` with a real server.

Port 11211 must be free, and chromium installed. Look at the picture afterwards.
"""

import io
import os
import pty
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import memlite.testing

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "shell.png"
COLUMNS = 84
PROMPT = "localhost:11211> "
LINES = (
    """set ada '{"name": "Ada", "visits": 41}' 0 3600""",
    "get ada",
    "mg ada t f s",
    "icnr visits 1",
    "stats hotkeys",
)

_PAGE = """\
<meta charset="utf-8">
<style>
body {{ margin: 0; padding: 20px 24px; width: max-content; background: #16181d; color: #e6e6e6; }}
pre {{ margin: 0; font: 15px/1.45 "DejaVu Sans Mono", monospace; }}
{stylesheet}
</style>
<pre>{code}</pre>
"""


def main() -> int:
    """Draw the picture, and return the exit code."""
    browser = shutil.which("chromium")
    if browser is None:
        sys.stderr.write("draw_shell.py: no chromium\n")
        return 1
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    with memlite.testing.server(port=11211):
        _request_often()
        for line in LINES:
            console.print(Text(f"{PROMPT}{line}"))
            console.print(Text.from_ansi(_shown(line)))
    console.print(Text(PROMPT))
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = started.new_page(device_scale_factor=2, viewport={"width": 200, "height": 100})
        page.set_content(console.export_html(theme=MONOKAI, code_format=_PAGE))
        PICTURE.parent.mkdir(exist_ok=True)
        page.locator("body").screenshot(path=PICTURE)
        started.close()
    return 0


def _request_often() -> None:
    """Make some keys hot: one read in 256 is sampled."""
    keys = ("front-page",) * 4 + ("prices",) * 2 + ("ada",)
    with socket.create_connection(("127.0.0.1", 11211), 10) as connection:
        replies = connection.makefile("rb")
        for _ in range(60):
            connection.sendall("".join(f"get {key}\r\n" for key in keys * 100).encode())
            for _ in range(100 * len(keys)):
                replies.readline()


def _shown(line: str) -> str:
    """Return the shell's output on a terminal for a typed line."""
    ours, its = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "memlite", "shell", "localhost:11211", line],
        stdout=its, stderr=its, check=False,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)},
    )  # fmt: skip
    os.close(its)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:  # on Linux: the other end is closed
        pass
    os.close(ours)
    return shown.decode().replace("\r\n", "\n").rstrip("\n")


if __name__ == "__main__":
    raise SystemExit(main())
