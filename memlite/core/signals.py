"""Blocks signals while the process starts and while it exits.

Their default actions would end the process with an error, or interrupt its cleanup. A blocked
signal stays pending in the kernel: it is delivered on `unblock`, or discarded when the process
ends.

This module is imported before everything else, so it must import very little.
"""

import signal

__all__ = ["block", "unblock"]


def _numbers() -> set[signal.Signals]:
    return {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}


def block() -> None:
    """Block signals. Does nothing on Windows, which cannot block them."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, _numbers())


def unblock() -> None:
    """Unblock signals; pending ones are delivered at once."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _numbers())
