"""What the figures of a load are made of."""

from __future__ import annotations

import asyncio
import os

import pytest
import websockets

from loadtest.baseline import EchoProcess
from loadtest.measure import Used, talking
from loadtest.server_cpu import Cpu, cpu
from loadtest.sessions import EchoSession, room_noise


def test_cost_is_per_second_and_session_and_per_frame() -> None:
    used = Used(10.0, Cpu(4.0, 1.0), 50_000)
    assert used.per_session(100) == 5.0
    assert used.per_frame == 100.0
    assert Used(10.0, Cpu(4.0, 1.0), 0).per_frame > 0, "a server that sent nothing divides by nothing"


def test_what_a_process_used_is_told_apart_by_threads_and_grows() -> None:
    def now() -> Cpu:
        os.sched_yield()  # the scheduler books what a thread used when it turns to another, or at its next tick
        return cpu(os.getpid())

    before = now()
    while (used := now() - before).main < 0.02:
        sum(range(10_000))
    assert used.total == pytest.approx(used.main + used.others)
    assert used.others > -0.001


async def test_the_bare_echo_server_echoes_and_ends_with_its_block() -> None:
    with EchoProcess() as bare:
        async with websockets.connect(bare.url, compression=None, proxy=None) as socket:
            await socket.send("a frame")
            assert await socket.recv() == "a frame"
        assert cpu(bare.pid).total > 0
    assert not os.path.exists(f"/proc/{bare.pid}")


async def test_a_session_that_cannot_connect_ends_the_load_with_its_reason() -> None:
    with EchoProcess() as bare:
        noise = room_noise()
        running = [EchoSession(bare.url, noise, 0), EchoSession("ws://127.0.0.1:9/", noise, 1)]
        with pytest.raises(ConnectionRefusedError):
            async with talking(running):
                raise AssertionError("nobody should talk")
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
