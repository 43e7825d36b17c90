"""What is compiled: which build is running, what classes tell mypyc, and the modules in C.

See docs/how-to/install-the-compiled-build.md.
"""

import importlib
import logging
import os
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from typing import TYPE_CHECKING

from memlite.core import clock

__all__ = ["build_of", "extension", "mypyc_attr", "running_build"]

_log = logging.getLogger(__name__)

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


def extension(name: str, version: int) -> ModuleType | None:
    """Return a module in C; None if it was not compiled, or for another version of what uses it.

    None as well if the environment has ``MEMLITE_NO_EXTENSIONS``: its twin in Python serves then.
    """
    if os.environ.get("MEMLITE_NO_EXTENSIONS"):
        return None
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    if getattr(module, "VERSION", None) != version:
        _log.warning(
            "%s was compiled for another version and is not used: compile it again, or remove it",
            module.__file__,
        )
        return None
    return module
