"""Less usual forms of commands have the same results in C and in Python on a shared table, too."""

import random
import re
from unittest.mock import patch

import pytest

from memlite.protocol.packets import Opcode
from memlite.server.execution import records, runner
from memlite.server.execution.runner import BinaryFallback
from memlite.server.execution.shared_text import SharedTextCommands
from tests.support.packets import store
from tests.unit.server.execution import test_native_uncommon_forms
from tests.unit.server.execution.test_native_uncommon_forms import STATES, binary, text
from tests.unit.server.execution.test_shared_runner import board, compare, make

pytestmark = pytest.mark.skipif(records.NATIVE is None, reason="the module in C is not compiled")

__all__ = ["board", "make"]  # fixtures

# The table has its own clock, which cannot be stopped: nothing expires but at a tick.
EXPTIMES = (0, 0, 0, 1000, 100_000, 2592000, 2592001, 2**31 - 1, -1, 2**31)


@pytest.fixture(autouse=True)
def times(monkeypatch):
    monkeypatch.setattr(test_native_uncommon_forms, "EXPTIMES", EXPTIMES)


SHARED_STATES = tuple(re.sub(rb" 1(?:00)? (\d)\r", rb" 1000 \1\r", state) for state in STATES)
SETTINGS = [pytest.param({}, id="usual"), pytest.param({"cas": False}, id="no uniques")]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_text_commands(make, monkeypatch, settings, seed):
    monkeypatch.setattr(test_native_uncommon_forms, "STATES", SHARED_STATES)
    choice = random.Random(seed)
    pair = [make(native=native, **settings) for native in (True, False)]
    for _ in range(200):
        drawn = [text(choice, pair[0]) for _ in range(choice.choice((1, 1, 2, 5)))]
        compare(pair, b"".join(drawn))
        if choice.random() < 0.03:
            compare(pair, choice.choice((b"TICK", b"TICK", b"flush_all\r\n")))


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_packets(make, settings, seed):
    choice = random.Random(seed)
    pair = [make(native=native, **settings) for native in (True, False)]
    for _ in range(200):
        drawn = [binary(choice, pair[0]) for _ in range(choice.choice((1, 1, 2, 5)))]
        compare(pair, b"".join(drawn))
        if choice.random() < 0.03:
            compare(pair, b"TICK")


WITHOUT_PYTHON = (*test_native_uncommon_forms.WITHOUT_PYTHON,)


@pytest.mark.parametrize("expiry", [0, 1000])
@pytest.mark.parametrize("data", WITHOUT_PYTHON)
def test_commands_that_need_no_python(make, data, expiry):
    worker = make(native=True)
    worker.send(b"set a 0 %d 2\r\n10\r\nset b 0 0 1\r\nx\r\n" % expiry)
    run = worker.server._connections.runner.text
    data = re.sub(b"CU", lambda _: b"C%d" % worker.unique(b"a"), data)
    with (
        patch.dict(runner.SHORTCUTS, clear=True),
        patch.object(SharedTextCommands, "try_get") as get,
    ):
        assert run(data, []) is not None
    assert not get.called


PACKETS = (*test_native_uncommon_forms.PACKETS,)


@pytest.mark.parametrize("expiry", [0, 1000])
@pytest.mark.parametrize("data", PACKETS)
def test_packets_that_need_no_python(make, data, expiry):
    worker = make(native=True)
    worker.send(store(Opcode.SET, b"a", b"10", exptime=expiry) + store(Opcode.SET, b"b", b"x"))
    with patch.object(BinaryFallback, "__call__") as counterpart:
        assert worker.server._connections.runner.binary(data, []) is not None
    assert not counterpart.called
