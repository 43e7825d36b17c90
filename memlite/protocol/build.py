"""Which build runs: see docs/how-to/install-the-compiled-build.md."""

from importlib.machinery import ExtensionFileLoader
from types import ModuleType

from memlite.protocol import text

__all__ = ["build_of", "running_build"]


def running_build() -> str:
    """Return ``compiled`` where the wire's modules are, else ``pure``."""
    return build_of(text)


def build_of(module: ModuleType) -> str:
    """Return ``compiled`` for a module that came as an extension, else ``pure``."""
    spec = module.__spec__
    compiled = spec is not None and isinstance(spec.loader, ExtensionFileLoader)
    return "compiled" if compiled else "pure"
