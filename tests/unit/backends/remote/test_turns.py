"""Turns: how many requests may be in progress at once."""

import asyncio

import pytest

from memlite.backends.remote.call import Call, Turns
from memlite.core.errors import StorageError

LONG = 60.0


async def test_as_many_as_there_are_are_taken_at_once():
    turns = Turns(2)
    assert turns.take_free()
    await turns.take(Call(LONG, "store"))
    assert turns.taken == 2
    assert not turns.take_free()
    turns.give_back()
    assert turns.take_free()


async def test_a_turn_goes_to_whoever_has_waited_longest():
    turns = Turns(1)
    assert turns.take_free()
    order = []

    async def wait(number):
        await turns.take(Call(LONG, "store"))
        order.append(number)
        assert turns.taken == 1
        # It is handed over, so nobody else can be faster.
        assert not turns.take_free()
        turns.give_back()

    waiting = [asyncio.ensure_future(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    turns.give_back()
    await asyncio.wait(waiting)
    assert order == [0, 1, 2]
    assert turns.taken == 0


async def test_who_waits_gives_up_when_the_time_is_over():
    turns = Turns(1)
    assert turns.take_free()
    with pytest.raises(StorageError, match="too many requests wait for a turn"):
        await turns.take(Call(0.01, "store"))
    turns.give_back()
    assert turns.taken == 0
    assert turns.take_free()


@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_turn_is_not_lost_with_who_waits_for_it(handed_over):
    """Also if that is cancelled after the turn was handed over, and before it has noticed."""
    turns = Turns(1)
    assert turns.take_free()
    waiting = asyncio.ensure_future(turns.take(Call(LONG, "store")))
    other = asyncio.ensure_future(turns.take(Call(LONG, "store")))
    await asyncio.sleep(0)
    if handed_over:
        turns.give_back()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    if not handed_over:
        turns.give_back()
    await other
    assert turns.taken == 1
    turns.give_back()
    assert turns.taken == 0
