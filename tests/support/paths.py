"""Where things are in the checkout that is tested."""

from pathlib import Path

__all__ = ["BACKEND_PACKAGE", "DOCS", "INSPECTED", "ROOT"]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

SUPPORT = Path(__file__).parent
BACKEND_PACKAGE = SUPPORT / "package_with_backend"
"""An installed package that registers a backend."""
INSPECTED = SUPPORT / "inspected"
"""On the path of a Python process, it lets tests look at the objects in that process."""
