"""Room for replies: each waiter gets it once, and gives it back once."""

import asyncio

import pytest

from memlite.server.execution.reply_room import ReplyRoom

LIMIT = 1_000_000
SIZE = 400_000


def full_room(*requests):
    """Return a room that is full, and the places of requests that wait for it."""
    room = ReplyRoom(LIMIT)
    room.waiting = LIMIT
    places = [room.claim(request, SIZE, 0, first=False) for request in requests]
    assert None not in places
    return room, places


async def wait_in(place):
    with place:
        await place.wait()
        await asyncio.Event().wait()  # stands for the repeated read


async def started(place):
    """Return a task that waits for room."""
    task = asyncio.ensure_future(wait_in(place))
    await asyncio.sleep(0)
    return task


async def cancelled(task):
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_reply_that_fits_does_not_wait():
    room = ReplyRoom(LIMIT)
    room.waiting = LIMIT - SIZE
    assert room.claim("a", SIZE, 0, first=False) is None
    assert room.claim("a", SIZE + 1, 0, first=False) is not None


async def test_a_reply_larger_than_the_limit_fits_alone():
    room = ReplyRoom(LIMIT)
    assert room.claim("a", 10 * LIMIT, 0, first=False) is None


async def test_the_first_has_to_wait_only_for_the_peer():
    room, _ = full_room()
    assert room.claim("a", SIZE, 0, first=True) is None
    assert room.claim("a", SIZE, LIMIT, first=True) is not None


async def test_room_available_before_the_task_begins_is_offered():
    room, (place,) = full_room("a")
    room.waiting = 0
    room.offer(["a"], 0)
    async with asyncio.timeout(60):
        with place:
            await place.wait()
            assert room.promised == SIZE
    assert (room.promised, room.short) == (0, {})


async def test_room_is_promised_in_order_and_no_more_than_there_is():
    room, _ = full_room("a", "b", "c")
    room.waiting = 0
    room.offer(["other", "a", "b", "c"], 0)
    assert list(room.short) == ["c"]
    assert room.promised == 2 * SIZE
    room.offer(["other", "a", "b", "c"], 0)
    assert list(room.short) == ["c"]


async def test_a_reply_that_does_not_fit_holds_up_later_ones():
    room, _ = full_room("a", "b")
    room.waiting = LIMIT - 1
    room.offer(["other", "a", "b"], 0)
    assert list(room.short) == ["a", "b"]
    room.offer(["a", "b"], 0)  # the first in line gets its room
    assert list(room.short) == ["b"]


@pytest.mark.parametrize("begun", [False, True])
async def test_a_cancelled_waiter_leaves_the_line(begun):
    room, (place, _) = full_room("a", "b")
    task = await started(place) if begun else None
    if task is None:
        with place:
            pass
    else:
        await cancelled(task)
    assert list(room.short) == ["b"]
    assert room.promised == 0
    room.waiting = 0
    room.offer(["a", "b"], 0)
    assert room.promised == SIZE


@pytest.mark.parametrize("noticed", [False, True])
async def test_a_waiter_cancelled_after_the_promise_gives_it_back(noticed):
    room, (place,) = full_room("a")
    task = await started(place)
    room.waiting = 0
    room.offer(["a"], 0)
    assert room.promised == SIZE
    if noticed:
        await asyncio.sleep(0)
    await cancelled(task)
    assert (room.promised, room.short) == (0, {})


async def test_a_waiter_promised_room_after_cancellation_gives_it_back():
    room, (place,) = full_room("a")
    task = await started(place)
    task.cancel()
    room.waiting = 0
    room.offer(["a"], 0)
    assert room.promised == SIZE
    await asyncio.wait([task])
    assert (room.promised, room.short) == (0, {})


async def test_an_error_gives_the_room_back_once():
    room, (place,) = full_room("a")
    room.release()
    with pytest.raises(ZeroDivisionError), place:
        await place.wait()
        raise ZeroDivisionError
    with place:
        pass
    assert (room.promised, room.short) == (0, {})


async def test_a_further_place_of_the_same_request_is_another():
    """A read whose new reply does not fit either lines up again, perhaps for more room."""
    room, (place,) = full_room("a")
    room.offer(["a"], 0)
    further = None
    with place:
        await place.wait()
    room.waiting = 0
    further = room.claim("a", 2 * SIZE, LIMIT, first=True)
    with place:
        pass
    assert room.short == {"a": further}
    assert room.promised == 0
    room.offer(["a"], 0)
    assert room.promised == 2 * SIZE


async def test_all_waiters_go_on_when_the_client_has_gone():
    room, places = full_room("a", "b", "c")
    tasks = [await started(place) for place in places]
    room.release()
    room.release()
    assert (room.promised, room.short) == (3 * SIZE, {})
    for task in tasks:
        await cancelled(task)
    assert room.promised == 0
