"""The locations of files and folders in the checkout under test."""

from pathlib import Path

__all__ = ["BACKEND_PACKAGE", "DOCS", "INSPECTED", "ROOT"]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

SUPPORT = Path(__file__).parent
BACKEND_PACKAGE = SUPPORT / "package_with_backend"
"""An installable package that registers a backend."""
INSPECTED = SUPPORT / "inspected"
"""A folder that makes a Python process with it on the path report its objects to tests."""
