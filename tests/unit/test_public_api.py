"""Modules export what they promise, and related tables agree."""

import importlib
import inspect
import pkgutil

import pytest

import memlite
from memlite.config import OPTIONS
from memlite.core.build import running_build

MODULES = [
    "memlite",
    *(found.name for found in pkgutil.walk_packages(memlite.__path__, "memlite.")),
]
SCRIPTS = {"memlite.__main__"}


def test_modules_are_found():
    assert {"memlite.cli.main", "memlite.protocol.text", "memlite.engine.engine"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_all_names_exist(name):
    module = importlib.import_module(name)
    if name in SCRIPTS:
        assert not hasattr(module, "__all__")
        return
    assert len(set(module.__all__)) == len(module.__all__)
    assert [public for public in module.__all__ if not hasattr(module, public)] == []


@pytest.mark.parametrize("name", MODULES)
def test_all_is_sorted_and_public(name):
    names = getattr(importlib.import_module(name), "__all__", [])
    assert [public for public in names if public.startswith("_") and public != "__version__"] == []


@pytest.mark.skipif(running_build() == "compiled", reason="mypyc removes docstrings")
@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_documented(name):
    module = importlib.import_module(name)
    assert module.__doc__
    for public in getattr(module, "__all__", []):
        thing = getattr(module, public)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert thing.__doc__, public


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_has_help(option):
    assert option.help.strip()
    assert option.help == " ".join(option.help.split())
    assert not option.help.endswith(".")


def test_option_names_are_unique():
    for names in (
        [option.name for option in OPTIONS],
        [option.short for option in OPTIONS if option.short],
        [option.variable for option in OPTIONS],
    ):
        assert len(set(names)) == len(names)
