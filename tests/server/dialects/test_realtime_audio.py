from __future__ import annotations

import numpy as np
import pytest

from codec import g711
from server.dialects.realtime_audio import OutputLane
from sessions.core.fence import Fence
from sessions.core.timeline import ticks_per_sample
from sessions.ports import OutputFrame

FENCE = Fence("s", 1, 0)


def frames(rate: int, count: int, gap_after: int | None = None, gap: int = 0) -> list[OutputFrame]:
    """20 ms frames of a 300 Hz tone; behind frame `gap_after` the placement jumps by `gap` ticks (a hold)."""
    size = rate // 50
    tone = np.rint(9000 * np.sin(2 * np.pi * 300 * np.arange(size * count) / rate)).astype("<i2")
    made = []
    for n in range(count):
        placed = 10_000 + n * 960 + (gap if gap_after is not None and n > gap_after else 0)
        pcm = tone[n * size : (n + 1) * size].tobytes()
        made.append(OutputFrame(FENCE, n, "r", "i", n * 960, (n + 1) * 960, placed, pcm, rate))
    return made


def test_pcm_at_the_clients_rate_passes_untouched() -> None:
    lane = OutputLane("audio/pcm")
    for frame in frames(24000, 3):
        assert lane.push(frame) == (frame.pcm, frame.placed_at)
    assert lane.last is None
    assert lane.tail() == (b"", 0)


@pytest.mark.parametrize(("media", "law"), [("audio/pcmu", "ulaw"), ("audio/pcma", "alaw")])
def test_g711_comes_out_at_eight_thousand_samples_a_second(media: str, law: g711.Law) -> None:
    lane = OutputLane(media)
    audio = b"".join(lane.push(frame)[0] for frame in frames(24000, 10))
    audio += lane.tail()[0]
    assert len(audio) == 10 * 160
    heard = np.frombuffer(g711.decode(audio, law), "<i2").astype(float)
    expected = 9000 * np.sin(2 * np.pi * 300 * np.arange(1600) / 8000)
    assert np.abs(heard[100:-100] - expected[100:-100]).max() < 300


@pytest.mark.parametrize("rate", [16000, 24000, 48000])
@pytest.mark.parametrize("media", ["audio/pcm", "audio/pcmu"])
def test_every_delta_says_where_its_first_sample_lies(rate: int, media: str) -> None:
    lane = OutputLane(media)
    out_rate = 24000 if media == "audio/pcm" else 8000
    width = 2 if media == "audio/pcm" else 1
    expected = 10_000
    for frame in frames(rate, 6):
        audio, starts = lane.push(frame)
        if audio:
            assert starts == expected
            expected += len(audio) // width * ticks_per_sample(out_rate)
    audio, starts = lane.tail()
    assert not audio or starts == expected
    assert expected + len(audio) // width * ticks_per_sample(out_rate) == 10_000 + 6 * 960


def test_a_waiting_sample_keeps_its_place_across_a_hold() -> None:
    lane = OutputLane("audio/pcmu")
    starts = [lane.push(frame)[1] for frame in frames(24000, 4, gap_after=1, gap=5000)]
    waiting = 4 * 48
    assert starts == [10_000, 10_960 - waiting, 10_000 + 2 * 960 - waiting, 10_000 + 3 * 960 + 5000 - waiting]


def test_a_reset_forgets_what_waits() -> None:
    lane = OutputLane("audio/pcmu")
    first, *rest = frames(24000, 3)
    lane.push(first)
    before = lane.last
    lane.reset()
    assert (before, lane.last) == (first, None)
    assert lane.tail()[0] == b""
    again = OutputLane("audio/pcmu")
    assert [lane.push(frame) for frame in rest] == [again.push(frame) for frame in rest]


def test_a_change_of_rate_begins_a_new_stream() -> None:
    lane = OutputLane("audio/pcmu")
    lane.push(frames(24000, 1)[0])
    eight = frames(8000, 1)[0]
    assert lane.push(eight) == (g711.encode(eight.pcm, "ulaw"), eight.placed_at)
    assert lane.last is None
