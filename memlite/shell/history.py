"""The lines typed before, kept in a file that nobody else may read."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History

__all__ = ["KeptHistory", "history_path", "is_secret"]

_LINE_AT_MOST = 4096
_FILE_AT_MOST = 1024 * 1024


def history_path() -> Path:
    """Return where the history is kept: in the XDG state directory."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else Path("~/.local/state").expanduser()
    return folder / "memlite" / "shell_history"


def is_secret(line: str) -> bool:
    """Return whether a line stays out of the file.

    That is one that begins with a space; one that authenticates (a value stored under the key
    ``auth``, as clients do); one of several pasted together, which may be anything; and one that is
    too long to be useful.
    """
    words = line.split(None, 2)
    authenticates = words[1:2] == ["auth"]
    return line.startswith(" ") or authenticates or "\n" in line or len(line) > _LINE_AT_MOST


class KeptHistory(History):
    """A history in a file, a line each. Without a file that can be used, it lasts a session.

    Args:
        path: of the file; it is made, with its directories, at the first line.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Yield the lines, the newest first; make a file that has grown too long shorter."""
        try:
            with self._path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > _FILE_AT_MOST:
                    file.seek(size - _FILE_AT_MOST // 2)
                    file.readline()  # the rest of one
                text = file.read(_FILE_AT_MOST).decode("utf-8", "replace")
        except OSError:
            return
        if size > _FILE_AT_MOST:
            self._replace(text)
        yield from reversed(text.split("\n")[:-1])

    def store_string(self, string: str) -> None:
        """Add a line to the file, unless it is secret."""
        if is_secret(string):
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(self._path, os.O_APPEND, f"{string}\n")

    def _replace(self, text: str) -> None:
        shorter = self._path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self._write(shorter, os.O_TRUNC, text)
            shorter.replace(self._path)

    def _write(self, path: Path, how: int, text: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # also of a file that somebody else made
            file.write(text.encode("utf-8", "replace"))
