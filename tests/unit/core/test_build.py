"""The detection of the running build."""

import importlib.util
import os

import pytest

import memlite.core.errors
import memlite.protocol.text
from memlite.core.build import build_of, describe_build, extension, running_build


def test_the_running_build_is_the_one_under_test():
    # Otherwise the tests of the compiled wheel could pass with the sources of the checkout.
    compiled = os.environ.get("MEMLITE_TEST_BUILD") == "compiled"
    assert (running_build() == "compiled") == compiled


def test_the_build_is_that_of_the_parsers():
    assert (running_build() == "compiled") == (build_of(memlite.protocol.text) == "compiled")


@pytest.mark.skipif(running_build() == "compiled", reason="a compiled build is described as such")
def test_the_description_mentions_modules_in_c(monkeypatch):
    there = importlib.util.find_spec("memlite.server.execution._native") is not None
    words = ("interpreted", "with C modules") if there else ("pure", "pure Python")
    monkeypatch.delenv("MEMLITE_NO_EXTENSIONS", raising=False)
    assert (running_build(), describe_build()) == words
    monkeypatch.setenv("MEMLITE_NO_EXTENSIONS", "1")
    assert (running_build(), describe_build()) == ("pure", "pure Python")


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
