"""Servers, test doubles and test suites for programs that use memlite and for backends.

A public API: `server` runs a server as a process; `pytest_plugin` has fixtures that do so;
`backend_contract` is the test suite for backends, and `gcs_emulator` stands in for a bucket.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlite.testing.process import ServerProcess, ServerStartError, TlsFiles, server

__all__ = ["ServerProcess", "ServerStartError", "TlsFiles", "server"]


def __getattr__(name: str) -> object:
    # Imported on demand: pytest imports this package for its plug-in even if no test needs a
    # server.
    if name in __all__:
        from memlite.testing import process

        return getattr(process, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
