"""Memory whose content is written later."""

from collections.abc import Callable
from functools import cache

__all__ = ["uninitialized_bytes"]


def uninitialized_bytes(size: int) -> bytes:
    """Return `size` bytes of arbitrary content, to be overwritten through a `BytesIO`.

    Clearing a megabyte costs a third as much as receiving it does. The content may be what other
    objects have left behind, so all of it must be overwritten before anyone can read it.

    Raises:
        MemoryError: there is not enough memory.
    """
    return _allocator()(size)


@cache
def _allocator() -> Callable[[int], bytes]:
    try:
        import ctypes  # missing from some builds of Python

        # https://docs.python.org/3/c-api/bytes.html: without a source, "the contents of the bytes
        # object are uninitialized".
        allocate = ctypes.pythonapi.PyBytes_FromStringAndSize
    except (ImportError, OSError, AttributeError):
        return bytes
    allocate.restype = ctypes.py_object
    allocate.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
    return lambda size: allocate(None, size)
