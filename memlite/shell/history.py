"""The history of typed lines, kept in a file readable only by its owner."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History

__all__ = ["FileHistory", "history_path", "is_secret"]

_MAX_LINE_LENGTH = 4096
_MAX_FILE_SIZE = 1024 * 1024


def history_path() -> Path:
    """Return the path of the history file, in the XDG state directory."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else Path("~/.local/state").expanduser()
    return folder / "memlite" / "shell_history"


def is_secret(line: str) -> bool:
    """Return whether a line must not be saved.

    Secret lines are those that begin with a space, lines that authenticate (by storing a value
    under the key ``auth``), multi-line pastes, which may contain anything, and lines too long to be
    useful.
    """
    words = line.split(None, 2)
    authenticates = words[1:2] == ["auth"]
    return line.startswith(" ") or authenticates or "\n" in line or len(line) > _MAX_LINE_LENGTH


class FileHistory(History):
    """A history in a file, one entry per line; kept only in memory if the file is unusable.

    Args:
        path: path of the file; created with its directories when the first line is stored.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Yield the lines, newest first; truncates a file that has grown too large."""
        try:
            with self._path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > _MAX_FILE_SIZE:
                    file.seek(size - _MAX_FILE_SIZE // 2)
                    file.readline()  # skip a partial line
                text = file.read(_MAX_FILE_SIZE).decode("utf-8", "replace")
        except OSError:
            return
        if size > _MAX_FILE_SIZE:
            self._replace(text)
        yield from reversed(text.split("\n")[:-1])

    def store_string(self, string: str) -> None:
        """Append a line to the file, unless it is secret."""
        if is_secret(string):
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(self._path, os.O_APPEND, f"{string}\n")

    def _replace(self, text: str) -> None:
        temporary = self._path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self._write(temporary, os.O_TRUNC, text)
            temporary.replace(self._path)

    def _write(self, path: Path, mode: int, text: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # the file may already exist with other permissions
            file.write(text.encode("utf-8", "replace"))
