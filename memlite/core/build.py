"""The compiled build: which build is running, class attributes for mypyc, and C modules.

See docs/how-to/install-the-compiled-build.md.
"""

import importlib
import logging
import os
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from types import ModuleType
from typing import TYPE_CHECKING

from memlite.core import clock

__all__ = ["build_of", "describe_build", "extension", "mypyc_attr", "running_build"]

_log = logging.getLogger(__name__)

# pathlib is not needed to serve, and takes long to import.
_PACKAGE = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
_DESCRIPTIONS = {
    "compiled": "compiled",
    "interpreted": "with C modules",
    "pure": "pure Python",
}

if TYPE_CHECKING:  # mypyc reads the real decorator here; nothing needs it at run time
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**attributes):
        """Return a decorator that leaves a class unchanged."""
        return lambda cls: cls


def running_build() -> str:
    """Return which build is running.

    Returns:
        ``compiled``; ``interpreted`` if only the C modules are available; or ``pure``.
    """
    found = build_of(clock)  # any module that the build compiles would do
    return "interpreted" if found == "pure" and _has_extensions() else found


def describe_build() -> str:
    """Return which build is running, in words."""
    return _DESCRIPTIONS[running_build()]


def _has_extensions() -> bool:
    """Return whether the C modules exist and may be used, without importing them."""
    # All of them are compiled together.
    start = os.path.join(_PACKAGE, "server", "execution", "_native")  # noqa: PTH118
    return not os.environ.get("MEMLITE_NO_EXTENSIONS") and any(
        os.path.exists(start + suffix)  # noqa: PTH110
        for suffix in EXTENSION_SUFFIXES
    )


def build_of(module: ModuleType) -> str:
    """Return ``compiled`` if `module` was loaded from an extension module, else ``pure``."""
    spec = module.__spec__
    compiled = spec is not None and isinstance(spec.loader, ExtensionFileLoader)
    return "compiled" if compiled else "pure"


def extension(name: str, version: int) -> ModuleType | None:
    """Return a C module; None if it was not compiled, or was compiled for another version.

    Also None if ``MEMLITE_NO_EXTENSIONS`` is set in the environment: its counterpart in Python
    then serves.
    """
    if os.environ.get("MEMLITE_NO_EXTENSIONS"):
        return None
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    if getattr(module, "VERSION", None) != version:
        _log.warning(
            "%s was compiled for another version and is not used; recompile or remove it",
            module.__file__,
        )
        return None
    return module
