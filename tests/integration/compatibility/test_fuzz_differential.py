"""Random conversations get the same replies from memlite and memcached; a wrong server is found."""

import random
from pathlib import Path

import pytest

from tests.support.differential import DIFFERENCES, PEER_OPTIONS, Comparison, Generator
from tests.support.servers import memcached_version, running

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "protocol.md"
CONVERSATIONS = 40


@pytest.mark.skipif(
    memcached_version() < (1, 6, 45), reason="no memcached 1.6.45 or later to compare with"
)
@pytest.mark.parametrize("kind", ["memlite", "memlite-file"])
def test_conversations_get_the_same_replies(kind: str) -> None:
    versioned = kind != "memlite"
    with running(kind) as ours, running("memcached", *PEER_OPTIONS) as theirs:
        comparison = Comparison((ours, theirs), versioned)
        for seed in range(CONVERSATIONS):
            conversation = Generator(random.Random(seed), versioned).conversation()
            found = comparison.difference(conversation)
            assert found is None, f"seed {seed}, memlite first:\n{comparison.shrink(found)}"


def test_a_server_without_cas_uniques_is_found_with_a_single_batch() -> None:
    with running("memlite") as right, running("memlite", "-C") as wrong:
        comparison = Comparison((right, wrong))
        conversations = (Generator(random.Random(seed)).conversation() for seed in range(100))
        found = next(filter(None, map(comparison.difference, conversations)))
        smallest = comparison.shrink(found).conversation
    assert sum(len(batch.units) for batch in smallest) <= 3


def test_the_same_seed_makes_the_same_conversation() -> None:
    first, second = (Generator(random.Random(5)).conversation() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("text", DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_excluded_differences_are_on_the_page(text: str) -> None:
    assert text in PAGE.read_text(encoding="utf-8")
