"""Fixtures of the tests in this folder."""

from tests.support.drawing import without_figures

__all__ = ["without_figures"]
