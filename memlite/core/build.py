"""The compiled build: which build is running, and what classes tell mypyc.

See docs/how-to/install-the-compiled-build.md.
"""

from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from typing import TYPE_CHECKING

from memlite.core import clock

__all__ = ["build_of", "mypyc_attr", "running_build"]

if TYPE_CHECKING:  # mypyc reads the real decorator here; nothing needs it at run time
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**attributes):
        """Return a decorator that leaves a class unchanged."""
        return lambda cls: cls


def running_build() -> str:
    """Return ``compiled`` if the compiled build is running, else ``pure``."""
    return build_of(clock)  # any module that the build compiles would do


def build_of(module: ModuleType) -> str:
    """Return ``compiled`` if `module` was loaded from an extension module, else ``pure``."""
    spec = module.__spec__
    compiled = spec is not None and isinstance(spec.loader, ExtensionFileLoader)
    return "compiled" if compiled else "pure"
