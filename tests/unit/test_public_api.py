"""What modules promise is there, and tables that must agree do."""

import importlib
import inspect
import pkgutil

import pytest

import memlite
from memlite.config import OPTIONS
from memlite.protocol.binary_handler import BinaryHandler
from memlite.protocol.build import running_build
from memlite.protocol.handler import COMMAND_CLASS, KEY_ARGUMENT, Handler
from memlite.server.binary import BinaryCommands
from memlite.server.commands import TextCommands
from memlite.server.instruments import LatencySampler, Tracer
from memlite.server.lite import LiteCommands
from memlite.stats import COMMAND_CLASSES

MODULES = [
    "memlite",
    *(found.name for found in pkgutil.walk_packages(memlite.__path__, "memlite.")),
]
SCRIPTS = {"memlite.__main__"}
IMPLEMENTED = [
    (name, handler, commands)
    for handler, commands in (
        (Handler, TextCommands),
        (Handler, LiteCommands),
        (BinaryHandler, BinaryCommands),
    )
    for name, member in vars(handler).items()
    if inspect.isfunction(member) and name[0] != "_"
]
HANDLER_METHODS = list(dict.fromkeys(name for name, _, _ in IMPLEMENTED))


def test_modules_are_found():
    assert {"memlite.cli", "memlite.protocol.text", "memlite.engine.engine"} <= set(MODULES)


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


@pytest.mark.skipif(running_build() == "compiled", reason="mypyc leaves docstrings out")
@pytest.mark.parametrize("name", MODULES)
def test_public_things_are_documented(name):
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


def test_every_handler_method_has_a_command_class():
    assert list(COMMAND_CLASS) == HANDLER_METHODS
    assert set(COMMAND_CLASS.values()) == set(COMMAND_CLASSES)


@pytest.mark.parametrize(("name", "handler", "commands"), IMPLEMENTED)
def test_commands_implement_every_handler_method(name, handler, commands):
    promised = inspect.signature(getattr(handler, name))
    given = inspect.signature(getattr(commands, name))
    if running_build() == "compiled":  # which keeps no annotations
        assert list(given.parameters) == list(promised.parameters)
    else:
        assert given == promised


@pytest.mark.parametrize("around", [LatencySampler, Tracer])
@pytest.mark.parametrize("name", HANDLER_METHODS)
def test_instruments_pass_every_handler_method_on(around, name):
    calls = []

    class Target:
        def __getattr__(self, method):
            return lambda *arguments: calls.append((method, *arguments))

    instrument = around()
    handler = (
        instrument.before(Target())
        if around is LatencySampler
        else instrument.before(Target(), [], 5)
    )
    if (name, around) == ("hit", Tracer):
        assert handler.hit(b"get a\r\n") is False  # it comes again as a get, and is passed on then
        assert calls == []
        return
    getattr(handler, name)(b"a", 1, True)
    assert calls == [(name, b"a", 1, True)]


@pytest.mark.parametrize("hit", [True, False])
def test_the_sampler_passes_on_whether_it_was_a_hit_and_records_only_hits(hit):
    class Target:
        def hit(self, line):
            assert line == b"get a\r\n"
            return hit

        def get(self, keys):
            assert keys == [b"a"]

    sampler = LatencySampler()
    handler = sampler.before(Target())
    assert handler.hit(b"get a\r\n") is hit
    assert sampler.histograms["get"].count == hit
    handler.get([b"a"])
    assert sampler.histograms["get"].count == hit + 1


def test_the_key_of_every_handler_method_is_where_it_is_said_to_be():
    found = {}
    for name in HANDLER_METHODS:
        protocol = BinaryHandler if name.startswith("binary") else Handler
        parameters = list(inspect.signature(getattr(protocol, name)).parameters)[1:]
        for key in {"key", "keys", "request"}.intersection(parameters):
            found[name] = parameters.index(key)
    for name in ("binary_admin", "binary_reject"):  # whose request is about no key
        del found[name]
    assert found == KEY_ARGUMENT
