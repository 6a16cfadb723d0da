from __future__ import annotations

from sessions.core.input import InputTrack
from sessions.core.timeline import Span


def test_contiguous_audio_moves_the_watermark() -> None:
    track = InputTrack()
    assert track.arrive(0, 960, False, 1000) == Span(0, 960)
    assert track.arrive(960, 1920, False, 2000) == Span(960, 1920)
    assert (track.watermark, track.concealed, track.live_at) == (1920, 0, 2000)


def test_a_gap_is_concealed_and_marked() -> None:
    track = InputTrack()
    track.arrive(0, 960, False, 1000)
    assert track.arrive(2880, 3840, False, 2000) == Span(960, 3840)
    assert (track.watermark, track.concealed) == (3840, 1920)


def test_concealed_audio_moves_the_watermark_but_is_no_sign_of_life() -> None:
    track = InputTrack()
    track.arrive(0, 960, False, 1000)
    assert track.arrive(960, 1920, True, 9000) == Span(960, 1920)
    assert (track.watermark, track.concealed, track.live_at) == (1920, 960, 1000)


def test_concealed_audio_behind_a_gap_is_marked_once() -> None:
    track = InputTrack()
    track.arrive(1000, 3000, True, 0)
    assert track.concealed == 3000


def test_a_late_duplicate_changes_nothing() -> None:
    track = InputTrack()
    track.arrive(0, 1920, False, 1000)
    assert track.arrive(0, 960, False, 2000) is None
    assert track.arrive(960, 1920, False, 2000) is None
    assert (track.watermark, track.live_at, track.late) == (1920, 1000, 2)


def test_only_the_new_part_of_an_overlap_is_taken() -> None:
    track = InputTrack()
    track.arrive(0, 1920, False, 1000)
    assert track.arrive(960, 2880, False, 2000) == Span(1920, 2880)
    assert track.concealed == 0


def test_an_empty_or_reversed_span_is_late() -> None:
    track = InputTrack()
    assert track.arrive(960, 960, False, 0) is None
    assert track.arrive(960, 480, False, 0) is None
    assert (track.watermark, track.late) == (0, 2)


def test_the_watermark_only_grows() -> None:
    track = InputTrack()
    marks = []
    for start in (0, 960, 960, 0, 4800, 1920, 3840, 5760):
        track.arrive(start, start + 960, start == 1920, 0)
        marks.append(track.watermark)
    assert marks == sorted(marks)
