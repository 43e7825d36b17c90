"""Fixtures that run servers; every server is a real process."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.support.servers import RunningServer, needs_memcached, running


@pytest.fixture(scope="module")
def memlite() -> Iterator[RunningServer]:
    """A memlite server that the tests of a module share."""
    with running("memlite", "--debug-commands") as server:
        yield server


@pytest.fixture(
    scope="module",
    params=[
        "memlite",
        "memlite-asyncio",
        "memlite-near",
        "memlite-file",
        pytest.param("memcached", marks=needs_memcached),
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """memlite on each event loop, and memcached, in turn: all must pass the same tests."""
    with running(request.param) as server:
        yield server


@pytest.fixture
def start() -> Iterator[Callable[..., RunningServer]]:
    """Return a function that starts servers, which run until the end of the test."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, kind: str = "memlite", **options: object) -> RunningServer:
            return stack.enter_context(running(kind, *arguments, **options))  # type: ignore[arg-type]

        yield start
