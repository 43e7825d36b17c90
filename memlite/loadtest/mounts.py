"""Which file system a path is on."""

from collections.abc import Iterable
from pathlib import Path

__all__ = ["file_system"]


def file_system(path: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """Return the type of the file system that holds `path`, such as ``ext4``; or ``unknown``.

    Args:
        path: a file or a directory.
        mounts: where file systems are mounted, and their types, in the order in which they were.
    """
    resolved = path.resolve()
    depth, kind = 0, "unknown"
    for point, found in mounts:
        parts = len(Path(point).parts)
        # Of two at the same point, the later one hides the other.
        if parts >= depth and resolved.is_relative_to(point):
            depth, kind = parts, found
    return kind
