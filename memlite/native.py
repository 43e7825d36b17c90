"""What mypyc is told about a class; see docs/how-to/install-the-compiled-build.md."""

from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:  # which is where mypyc finds it; nothing of it is needed to run
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**attributes):
        """Return what leaves a class as it is."""
        return lambda cls: cls
