"""The detection of the running build, pure or compiled."""

import os

import pytest

import memlite.core.errors
import memlite.protocol.text
from memlite.core.build import build_of, extension, running_build


def test_the_running_build_is_the_one_under_test():
    # Otherwise the tests of the compiled wheel could pass on the sources in the checkout.
    assert running_build() == os.environ.get("MEMLITE_TEST_BUILD", "pure")


def test_the_build_is_that_of_the_parsers():
    assert running_build() == build_of(memlite.protocol.text)


def test_a_module_in_python_is_pure():
    assert build_of(memlite.core.errors) == "pure"


def test_an_extension_is_compiled():
    loop = pytest.importorskip("uvloop.loop", reason="uvloop is not installed")
    assert build_of(loop) == "compiled"


def test_an_extension_can_be_left_out(monkeypatch):
    module = pytest.importorskip(
        "memlite.proxy._native", reason="the modules in C are not compiled"
    )
    assert extension("memlite.proxy._native", module.VERSION) is not None
    monkeypatch.setenv("MEMLITE_NO_EXTENSIONS", "1")
    assert extension("memlite.proxy._native", module.VERSION) is None
