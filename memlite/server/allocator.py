"""The C library's allocator, told how items are."""

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ctypes

__all__ = ["give_back", "tune_allocator"]

# From malloc.h of glibc.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3

_LARGEST_IN_HEAP: Final = 1024 * 1024
_KEPT_AT_TOP: Final = 4 * 1024 * 1024


@cache
def _library() -> "ctypes.CDLL | None":
    """Return glibc; None where there is another, or no way to call it."""
    try:
        import ctypes  # which not every build of Python has

        library = ctypes.CDLL(None)
    except (ImportError, OSError, TypeError):
        return None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


def tune_allocator() -> None:
    """Keep what is large, from a mebibyte, out of the heap.

    By itself glibc moves the bound between heap and mappings up to the largest block that was ever
    freed, and blocks of megabytes then leave holes that smaller ones fill: churn in 256 MB came
    to 1.16 times that, against 1.07. Other C libraries are left alone.
    """
    library = _library()
    if library is not None:
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_AT_TOP)


def give_back() -> None:
    """Let the system have what the heap keeps of freed memory, page by page.

    Takes a millisecond for some 6 MB. By itself glibc returns only what is free at its top.
    """
    library = _library()
    if library is not None:
        library.malloc_trim(0)
