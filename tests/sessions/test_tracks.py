from __future__ import annotations

import pytest

from sessions.core.timeline import from_ms
from sessions.tracks import RUN, OutputTrack, silence, ticks_of


def counting(first: int, samples: int) -> bytes:
    """Samples whose values are their numbers."""
    return b"".join(number.to_bytes(2, "little") for number in range(first, first + samples))


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 48_000])
def test_the_length_of_audio_is_its_samples_on_the_timeline(rate: int) -> None:
    assert ticks_of(bytes(2 * rate), rate) == 48_000
    assert ticks_of(silence(from_ms(250), rate), rate) == from_ms(250)


def test_half_a_sample_has_no_length() -> None:
    assert ticks_of(bytes(3), 24_000) == 2


def test_a_rate_that_does_not_divide_the_timeline_is_refused() -> None:
    with pytest.raises(ValueError, match="resample"):
        ticks_of(bytes(2), 44_100)


def test_frames_are_the_samples_that_were_appended_whatever_the_pieces() -> None:
    track = OutputTrack(24_000, 0)
    appended = 0
    for samples in (1, 240, 7, 1000, 232):
        assert track.append(2 * appended, counting(appended, samples))
        appended += samples
    frames = [track.cut(start, start + 74) for start in range(0, 2 * appended, 74)]
    assert b"".join(frames) == counting(0, appended)


def test_audio_that_does_not_follow_is_not_taken() -> None:
    track = OutputTrack(24_000, 0)
    track.append(0, counting(0, 10))
    assert not track.append(22, counting(11, 5))
    assert not track.append(10, counting(5, 5))
    assert track.end == 20
    assert track.cut(0, 20) == counting(0, 10)


def test_a_track_may_begin_anywhere() -> None:
    track = OutputTrack(24_000, from_ms(1000))
    track.append(from_ms(1000), counting(0, 480))
    assert track.end == from_ms(1020)
    assert track.cut(from_ms(1010), from_ms(1020)) == counting(240, 240)


def test_what_was_passed_over_or_cut_is_gone() -> None:
    track = OutputTrack(24_000, 0)
    track.append(0, counting(0, 100))
    track.cut(20, 40)
    with pytest.raises(ValueError, match="not in the track"):
        track.cut(0, 20)
    assert track.cut(40, 60) == counting(20, 10)


def test_audio_that_has_not_come_is_refused_with_what_there_is() -> None:
    track = OutputTrack(24_000, 0)
    track.append(0, counting(0, 10))
    with pytest.raises(ValueError, match=r"\[10, 30\) is not in the track, which holds \[0, 20\)"):
        track.cut(10, 30)
    assert track.cut(0, 20) == counting(0, 10)


def test_an_endless_track_forgets_what_was_not_admitted() -> None:
    track = OutputTrack(24_000, 0)
    track.append(0, counting(0, 100))
    track.drop_before(50)
    assert track.end == 200
    assert track.cut(50, 60) == counting(25, 5)
    track.drop_before(10)
    assert track.cut(60, 62) == counting(30, 1)
    track.drop_before(1000)
    assert track.end == 200
    assert track.append(200, counting(100, 1))


def test_frames_that_follow_each_other_share_a_run_and_none_goes_over_its_end() -> None:
    track = OutputTrack(24_000, 0)
    track.append(0, counting(0, 24_000))
    runs: list[bytes] = []
    for start in range(0, 48_000, 960):
        run, at, size = track.cut_run(start, start + 960)
        assert run[at : at + size] == counting(start // 2, 480)
        if not runs or run is not runs[-1]:
            assert at == 0
            runs.append(run)
    whole = RUN // 2
    assert [len(run) // 2 for run in runs] == [whole] * (24_000 // whole) + [24_000 % whole]


def test_a_run_holds_only_what_is_there_and_a_jump_begins_another() -> None:
    track = OutputTrack(24_000, 0)
    track.append(0, counting(0, 500))
    assert track.cut_run(0, 960) == (counting(0, 500), 0, 960)
    track.append(1000, counting(500, 1000))
    assert track.cut_run(960, 1920) == (counting(480, 1020), 0, 960)
    assert track.cut_run(2000, 2020) == (counting(480, 1020), 1040, 20)
    track.drop_before(2900)
    assert track.cut_run(2900, 3000) == (counting(480, 1020), 1940, 100)
