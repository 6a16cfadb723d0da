from __future__ import annotations

import asyncio
import threading

import pytest

from sessions import virtual_clock
from sessions.virtual_clock import run


def test_time_begins_at_zero() -> None:
    async def scenario() -> float:
        return asyncio.get_running_loop().time()

    assert run(scenario()) == 0.0


def test_an_hour_of_waiting_is_a_jump_of_exactly_that_length() -> None:
    async def scenario() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run(scenario()) == pytest.approx(3600, abs=1e-6)


def test_timers_go_off_in_the_order_of_their_times_not_of_their_setting() -> None:
    order: list[tuple[str, float]] = []

    async def wait(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append((name, asyncio.get_running_loop().time()))

    async def scenario() -> None:
        await asyncio.gather(wait("late", 30), wait("early", 10), wait("middle", 20))

    run(scenario())
    assert [name for name, _ in order] == ["early", "middle", "late"]
    assert [at for _, at in order] == pytest.approx([10, 20, 30])


def test_the_clock_does_not_move_while_there_is_something_to_do() -> None:
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(5, lambda: None)
        for _ in range(1000):
            await asyncio.sleep(0)
        return loop.time()

    assert run(scenario()) == 0.0


def test_what_is_due_while_the_process_is_blocked_is_late() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_clock.VirtualClockLoop)
        late = asyncio.create_task(asyncio.sleep(0.1))
        await asyncio.sleep(0.05)
        loop.block(0.2)
        await late
        return loop.time()

    assert run(main()) == pytest.approx(0.25)


def test_a_timeout_is_virtual_too() -> None:
    async def scenario() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run(scenario()) == pytest.approx(60)


def test_a_wait_that_nobody_will_end_is_a_deadlock_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_clock, "THREAD_PATIENCE", 0.01)

    async def scenario() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="deadlock"):
        run(scenario())


def test_a_thread_is_waited_for_when_no_timer_is_set() -> None:
    async def scenario() -> tuple[str, float]:
        answer = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(answer.set_result, "done"))
        thread.start()
        result = await answer
        thread.join()
        return str(result), loop.time()

    assert run(scenario()) == ("done", 0.0)


def test_what_is_raised_inside_comes_out() -> None:
    async def scenario() -> None:
        await asyncio.sleep(1)
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        run(scenario())
