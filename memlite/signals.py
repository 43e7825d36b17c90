"""Signals, held back from the first moment and again in the last.

Their default actions end the process with an error, or in the middle of tidying up. While held, a
signal stays with the kernel: it acts on `release`, or goes with the process.

Imported before everything else, so this must not import much.
"""

import signal

__all__ = ["hold", "release"]


def _numbers() -> set[signal.Signals]:
    return {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}


def hold() -> None:
    """Let no signal act on this process; on Windows, which cannot, do nothing."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, _numbers())


def release() -> None:
    """Let signals act, those first that came meanwhile."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _numbers())
