"""The file system that contains a path."""

from collections.abc import Iterable
from pathlib import Path

__all__ = ["file_system"]


def file_system(path: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """Return the type of the file system that holds `path`, such as ``ext4``; or ``unknown``.

    Args:
        path: a file or a directory.
        mounts: mount points and types of file systems, in the order in which they were mounted.
    """
    resolved = path.resolve()
    depth, kind = 0, "unknown"
    for point, found in mounts:
        parts = len(Path(point).parts)
        # A later mount at the same mount point hides the earlier one.
        if parts >= depth and resolved.is_relative_to(point):
            depth, kind = parts, found
    return kind
