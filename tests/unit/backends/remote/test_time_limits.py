"""Time limits for many tasks at once."""

import asyncio
import time

import pytest

from memlite.backends.remote.call import TimeLimits


@pytest.fixture
def limits():
    return TimeLimits()


async def test_slow_work_times_out(limits):
    async def work(seconds):
        await asyncio.sleep(seconds)
        return "done"

    async def limited(seconds):
        return await limits.run(work(seconds), time.monotonic() + 1)

    started = time.monotonic()
    outcomes = await asyncio.gather(*map(limited, (0, 0.01, 60, 60)), return_exceptions=True)
    assert 1 <= time.monotonic() - started < 30
    assert outcomes[:2] == ["done", "done"]
    assert [type(outcome) for outcome in outcomes[2:]] == [TimeoutError, TimeoutError]


async def test_a_task_continues_after_a_timeout(limits):
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await limits.run(asyncio.sleep(5), time.monotonic() + 0.001)
        await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0


async def test_a_task_cancelled_by_another_stays_cancelled(limits):
    task = asyncio.create_task(limits.run(asyncio.sleep(5), time.monotonic() + 5))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_cancelled_by_both_stays_cancelled(limits):
    async def work():
        try:
            await asyncio.sleep(5)
        finally:
            task.cancel()

    task = asyncio.create_task(limits.run(work(), time.monotonic() + 0.001))
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_other_errors_pass(limits):
    async def work():
        try:
            await asyncio.sleep(5)
        finally:
            raise KeyError

    with pytest.raises(KeyError):
        await limits.run(work(), time.monotonic() + 0.001)
    assert asyncio.current_task().cancelling() == 0


async def test_nothing_is_left_running(limits):
    async def work():
        assert limits._timer is not None

    await limits.run(work(), time.monotonic() + 1)
    await asyncio.sleep(0.05)
    assert limits._timer is None
    assert not limits._due
