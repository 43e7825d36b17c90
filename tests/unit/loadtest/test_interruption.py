"""Ctrl-C is an interruption, even if a library turns it into another error."""

import os
import signal

import pytest

from memlite.loadtest.report.interruption import interruptible


@pytest.fixture(autouse=True)
def handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def convert():
    """Raise an error, as a library in C++ does when it is interrupted."""
    try:
        interrupt()
    except KeyboardInterrupt:
        raise TypeError("incompatible arguments") from None


@pytest.mark.parametrize("function", [interrupt, convert])
def test_an_interruption(function):
    with pytest.raises(KeyboardInterrupt), interruptible():
        function()


def test_other_errors_are_unchanged():
    with pytest.raises(TypeError, match="its own"), interruptible():
        raise TypeError("its own")


def test_a_signal_that_is_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible():
        interrupt()
    signal.signal(signal.SIGINT, signal.default_int_handler)
