"""Turns: how many requests may be in progress at once."""

import asyncio
from time import monotonic

import pytest

from memlite.backends.remote.call import Call, Turns
from memlite.core.errors import StorageError

LONG = 60.0


async def test_free_turns_are_taken_at_once():
    turns = Turns(2)
    assert turns.take_free()
    await turns.take(Call(LONG, "store"))
    assert turns.taken == 2
    assert not turns.take_free()
    turns.give_back()
    assert turns.take_free()


async def test_a_turn_goes_to_the_longest_waiter():
    turns = Turns(1)
    assert turns.take_free()
    order = []

    async def wait(number):
        await turns.take(Call(LONG, "store"))
        order.append(number)
        assert turns.taken == 1
        # The turn is handed over, so no other task can take it first.
        assert not turns.take_free()
        turns.give_back()

    waiting = [asyncio.ensure_future(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    turns.give_back()
    await asyncio.wait(waiting)
    assert order == [0, 1, 2]
    assert turns.taken == 0


async def test_a_waiter_gives_up_at_its_deadline():
    turns = Turns(1)
    assert turns.take_free()
    with pytest.raises(StorageError, match="too many requests in progress"):
        await turns.take(Call(0.01, "store"))
    turns.give_back()
    assert turns.taken == 0
    assert turns.take_free()


@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_turn_is_not_lost_with_a_cancelled_waiter(handed_over):
    """Not even if the waiter is cancelled after it was handed the turn, before it notices."""
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


async def test_a_waiter_cancelled_at_its_deadline_gives_nothing_back():
    turns = Turns(1)
    assert turns.take_free()
    waiting = asyncio.ensure_future(turns.take(Call(0.01, "store")))
    await asyncio.sleep(0)
    (waiter, _) = turns._waiting[0]
    while not waiter.done():  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert turns.taken == 1


class Waiter:
    """A waiter that records its outcome."""

    def __init__(self, name, told):
        self.name = name
        self.told = told

    def done(self):
        return False

    def set_result(self, turn):
        self.told.append((self.name, True))

    def set_exception(self, error):
        assert isinstance(error, TimeoutError)
        self.told.append((self.name, False))


async def test_a_waiter_need_not_be_a_task():
    turns, told = Turns(1), []
    assert turns.take_free()
    now = monotonic()
    for name, seconds in (("a", LONG), ("b", 0.01), ("c", LONG)):
        turns.line_up(Waiter(name, told), now + seconds)
    turns.give_back()
    assert told == [("a", True)]
    while len(told) < 2:  # noqa: ASYNC110 - likewise
        await asyncio.sleep(0)
    turns.give_back()
    assert told == [("a", True), ("b", False), ("c", True)]
    assert turns.taken == 1
    turns.give_back()
    assert turns.taken == 0
