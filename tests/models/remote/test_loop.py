"""`models.remote.loop`: coroutines for threads, and an end that waits for nothing."""

from __future__ import annotations

import asyncio
import threading

import pytest

from models.remote.errors import RemoteError
from models.remote.loop import RemoteLoop


async def answer() -> int:
    return 7


def test_a_thread_gets_what_a_coroutine_returns_or_raises() -> None:
    async def fail() -> int:
        raise KeyError("x")

    loop = RemoteLoop("test")
    assert loop.call(answer()) == 7
    with pytest.raises(KeyError):
        loop.call(fail())
    loop.close()


def test_closing_cuts_off_who_waits_and_refuses_who_comes_later() -> None:
    begun, ended = threading.Event(), threading.Event()
    errors: list[RemoteError] = []
    loop = RemoteLoop("test")

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def call() -> None:
        try:
            loop.call(wait())
        except RemoteError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert begun.wait(5)
    loop.close()
    thread.join(5)
    assert ended.is_set()
    assert [error.code for error in errors] == ["remote_closed"]
    loop.close()
    loop.soon(lambda: None)
    with pytest.raises(RemoteError, match="shut down"):
        loop.call(answer())
