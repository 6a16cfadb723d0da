from __future__ import annotations

import os
import sys
import threading

import pytest

from models.priority import HEAVY, load_lowered, lower_priority

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads have priorities of their own on Linux")


def nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def in_a_thread(run: object) -> None:
    thread = threading.Thread(target=run)  # type: ignore[arg-type]
    thread.start()
    thread.join()


@linux
def test_a_thread_is_lowered_alone_and_hands_that_on_to_the_threads_it_starts() -> None:
    before = nice()
    seen: list[int] = []

    def heavy() -> None:
        lower_priority()
        seen.append(nice())
        in_a_thread(lambda: seen.append(nice()))

    in_a_thread(heavy)
    assert seen == [min(19, before + HEAVY)] * 2
    assert nice() == before


@linux
def test_what_is_loaded_lowered_runs_lowered() -> None:
    before = nice()
    assert load_lowered(nice) == min(19, before + HEAVY)
    assert nice() == before


def test_a_failed_load_raises_what_failed() -> None:
    def load() -> None:
        raise FileNotFoundError("model.bin")

    with pytest.raises(FileNotFoundError, match=r"model\.bin"):
        load_lowered(load)
