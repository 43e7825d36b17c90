"""Through a proxy with one node, text and meta conversations get the same bytes as without."""

import contextlib
import random
from collections.abc import Iterator

import pytest

from tests.support.differential import Batch, Comparison, Conversation, Generator
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, running

CONVERSATIONS = 60
# A proxy answers these differently, even if they are malformed, because they are about a node.
OF_NODES = (b"cache_memlimit", b"stats")


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[RunningServer, RunningServer]]:
    with contextlib.ExitStack() as stack:
        direct = stack.enter_context(running("memlite", "-B", "ascii"))
        node = stack.enter_context(running("memlite"))
        yield direct, stack.enter_context(proxy([node]))


def forwarded(conversation: Conversation) -> Conversation:
    """Return the requests of a conversation that are in text and not about a node."""
    batches = [
        Batch(
            False,
            tuple(unit for unit in batch.units if not unit.data.lstrip().startswith(OF_NODES)),
            batch.cuts,
            batch.last,
        )
        for batch in conversation
        if not batch.binary
    ]
    return [batch for batch in batches if batch.units or batch.last]


@pytest.mark.parametrize(
    "part", [0, 1, *(pytest.param(part, marks=pytest.mark.slow) for part in (2, 3))]
)
def test_conversations(pair: tuple[RunningServer, RunningServer], part: int) -> None:
    comparison = Comparison(pair)
    for seed in range(part * CONVERSATIONS, (part + 1) * CONVERSATIONS):
        conversation = forwarded(Generator(random.Random(seed)).conversation())
        found = comparison.difference(conversation) if conversation else None
        assert found is None, f"seed {seed}, the node first:\n{comparison.shrink(found)}"
