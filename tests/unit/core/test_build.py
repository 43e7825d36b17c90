"""Which build runs, and what tells."""

import os

import pytest

import memlite.core.errors
import memlite.protocol.text
from memlite.core.build import build_of, running_build


def test_it_is_the_one_that_is_to_be_tested():
    # Or else the tests of the compiled wheel would pass on the sources beside them.
    assert running_build() == os.environ.get("MEMLITE_TEST_BUILD", "pure")


def test_it_is_that_of_the_parsers():
    assert running_build() == build_of(memlite.protocol.text)


def test_a_module_in_python_is_pure():
    assert build_of(memlite.core.errors) == "pure"


def test_an_extension_is_compiled():
    loop = pytest.importorskip("uvloop.loop", reason="uvloop is not installed")
    assert build_of(loop) == "compiled"
