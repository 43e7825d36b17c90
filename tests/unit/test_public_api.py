"""Modules export the names they promise, and related tables agree."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

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


def exported() -> Iterator[tuple[str, str]]:
    """Yield each module with each name in its ``__all__``."""
    for module in MODULES:
        for name in getattr(importlib.import_module(module), "__all__", []):
            yield module, name


def test_modules_say_what_they_export():
    silent = {name for name in MODULES if not hasattr(importlib.import_module(name), "__all__")}
    assert silent == SCRIPTS


def test_all_names_exist_and_are_public():
    names = list(exported())
    assert len(set(names)) == len(names)
    wrong = [
        (module, name)
        for module, name in names
        if not hasattr(importlib.import_module(module), name)
        or (name.startswith("_") and name != "__version__")
    ]
    assert wrong == []


@pytest.mark.skipif(running_build() == "compiled", reason="mypyc removes docstrings")
def test_public_names_are_documented():
    silent = [name for name in MODULES if not importlib.import_module(name).__doc__]
    for module, name in exported():
        thing = getattr(importlib.import_module(module), name)
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and not thing.__doc__:
            silent.append(f"{module}.{name}")
    assert silent == []


def test_every_option_has_help():
    for option in OPTIONS:
        assert option.help.strip(), option.name
        assert option.help == " ".join(option.help.split()), option.name
        assert not option.help.endswith("."), option.name


def test_option_names_are_unique():
    for names in (
        [option.name for option in OPTIONS],
        [option.short for option in OPTIONS if option.short],
        [option.variable for option in OPTIONS],
    ):
        assert len(set(names)) == len(names)
