"""`models.families.vllm_omni.speech`: a remote model's pieces on the session's clock."""

from __future__ import annotations

from collections import Counter

import numpy as np

from models.families.vllm_omni.protocol import Audio, Began, Cleared, Ended, EpochMoved, Listens, Text
from models.families.vllm_omni.speech import FRAME, RATE, STALL_FRAMES, Cut, Frame, RemoteSpeech
from sessions.core.timeline import Ticks

FRAME_SAMPLES = FRAME * RATE // 48_000


def pcm(frames: float, level: int = 1000) -> bytes:
    """Samples that count upwards, so that a hole or a repetition shows."""
    samples = np.arange(round(frames * FRAME_SAMPLES)) % 100 + level
    return samples.astype("<i2").tobytes()


class Track:
    """Takes frames one after the other."""

    def __init__(self, *, continuous: bool = False) -> None:
        self.counters: Counter[str] = Counter()
        self.speech = RemoteSpeech(self.counters, continuous=continuous)
        self.at: Ticks = 0

    def take(self, count: int = 1) -> list[Frame]:
        frames = []
        for _ in range(count):
            frames.append(self.speech.frame(self.at))
            self.at += FRAME
        return frames

    def speaking(self, count: int) -> str:
        """One letter for each frame: S speech, u underrun (speaking, but silent), . silence."""
        return "".join("." if not f.speaking else "S" if any(f.pcm) else "u" for f in self.take(count))

    def say(self, response: str = "r", frames: float = 4, epoch: int | None = 0, level: int = 1000) -> None:
        self.speech.feed(Audio(response, epoch, pcm(frames, level), RATE))


def test_pieces_of_any_length_leave_as_frames_in_order_and_without_a_hole() -> None:
    track = Track()
    track.speech.feed(Began("r", 0))
    whole = pcm(5)
    for begin, end in ((0, 10), (10, 4000), (4000, 4002), (4002, len(whole))):
        track.speech.feed(Audio("r", 0, whole[begin:end], RATE))
    track.speech.feed(Ended("r", 0, "completed"))
    assert b"".join(frame.pcm for frame in track.take(5)) == whole
    assert track.speaking(2) == ".."


def test_audio_at_another_rate_is_resampled_to_its_length() -> None:
    track = Track()
    track.speech.feed(Audio("r", 0, bytes(2) * 22_050, 22_050))
    track.speech.feed(Ended("r", 0, "completed"))
    assert track.speech.waiting == 48_000


def test_a_rate_that_changes_inside_a_response_loses_nothing() -> None:
    track = Track()
    track.speech.feed(Audio("r", 0, bytes(2) * 8_000, 16_000))
    track.speech.feed(Audio("r", 0, bytes(2) * 12_000, 24_000))
    track.speech.feed(Ended("r", 0, "completed"))
    assert track.speech.waiting == 48_000


def test_the_last_frame_is_filled_up_with_silence_and_carries_the_rest_of_the_text() -> None:
    track = Track()
    track.say(frames=1.25)
    track.speech.feed(Text("r", " One two", spoken=True))
    track.speech.feed(Ended("r", 0, "completed"))
    first, last = track.take(2)
    assert len(last.pcm) == len(first.pcm) == FRAME_SAMPLES * 2
    assert not any(last.pcm[FRAME_SAMPLES // 2 :])
    assert first.text + last.text == " One two"


def test_words_lie_over_the_audio_that_they_came_with() -> None:
    track = Track()
    track.say(frames=10)
    track.speech.feed(Text("r", " aaaa bbbb", spoken=True))
    track.say(frames=10)
    track.speech.feed(Text("r", " cccc dddd", spoken=True))
    texts = [frame.text for frame in track.take(20)]
    assert {place: text for place, text in enumerate(texts) if text} == {
        0: " aaaa",
        5: " bbbb",
        10: " cccc",
        15: " dddd",
    }


def test_a_response_that_owes_audio_goes_on_in_silence_and_is_one_response() -> None:
    track = Track()
    track.say(frames=2)
    assert track.speaking(4) == "SSuu"
    track.say(frames=2)
    track.speech.feed(Ended("r", 0, "completed"))
    assert track.speaking(4) == "SS.."
    assert track.counters["underrun_frames"] == 2


def test_a_response_that_begins_without_audio_is_not_speech_yet() -> None:
    track = Track()
    track.speech.feed(Began("r", 0))
    assert track.speaking(3) == "..."
    track.say(frames=1)
    assert track.speaking(1) == "S"


def test_a_response_that_stalls_is_given_up_and_what_it_says_later_is_stale() -> None:
    track = Track()
    track.say(frames=1)
    said = track.speaking(STALL_FRAMES + 2)
    assert said == "S" + "u" * (STALL_FRAMES - 1) + ".."
    assert track.speech.stalled == ["r"]
    track.say(frames=3)
    assert track.speaking(2) == ".."
    assert track.counters["responses_stalled"] == 1
    assert track.counters["output_stale_samples"] == 3 * FRAME_SAMPLES


def test_a_silent_frame_lies_between_two_responses() -> None:
    track = Track()
    for name in ("a", "b"):
        track.speech.feed(Began(name, 0))
        track.say(name, frames=2)
        track.speech.feed(Ended(name, 0, "completed"))
    assert track.speaking(6) == "SS.SS."


def test_a_cut_drops_what_waits_and_tells_how_much_was_heard() -> None:
    track = Track()
    track.say(frames=10)
    track.take(4)
    assert track.speech.cut(3 * FRAME) == [Cut("r", heard_ms=240, making=True)]
    assert track.speaking(3) == "..."
    track.say(frames=2)
    track.speech.feed(Ended("r", 0, "cancelled"))
    assert track.speaking(3) == "..."
    assert track.counters["output_dropped_samples"] == 6 * FRAME_SAMPLES
    assert track.counters["output_stale_samples"] == 2 * FRAME_SAMPLES


def test_a_cut_counts_only_audio_and_not_the_silence_in_between() -> None:
    track = Track()
    track.say(frames=2)
    track.take(5)
    track.say(frames=2)
    track.take(2)
    assert track.speech.cut(6 * FRAME) == [Cut("r", heard_ms=240, making=True)]


def test_a_response_that_is_made_but_still_sounds_is_reported_as_made() -> None:
    track = Track()
    track.say(frames=2)
    track.speech.feed(Ended("r", 0, "completed"))
    track.take(3)
    assert track.speech.cut(FRAME) == [Cut("r", heard_ms=80, making=False)]


def test_what_is_begun_before_the_server_knows_of_the_cut_is_never_said() -> None:
    track = Track()
    track.say(frames=4)
    track.take(1)
    track.speech.cut(FRAME)
    track.speech.feed(Began("late", 0))
    track.say("late", frames=2)
    assert track.speaking(3) == "..."
    track.speech.feed(Ended("r", 1, "cancelled"))
    track.say("late", frames=2, epoch=None)
    track.speech.feed(Began("next", 1))
    track.say("next", frames=2, epoch=1)
    assert track.speaking(2) == "SS"


def test_a_server_that_never_answers_a_cut_is_believed_again_after_two_seconds() -> None:
    track = Track()
    track.say(frames=4, epoch=None)
    track.take(1)
    track.speech.cut(FRAME)
    track.take(25)
    track.say("next", frames=1, epoch=None)
    assert track.speaking(1) == "S"


def test_audio_of_an_old_epoch_is_dropped_and_counted() -> None:
    track = Track()
    track.speech.feed(EpochMoved(3))
    track.say("old", frames=2, epoch=2)
    assert track.speaking(2) == ".."
    assert track.counters["output_stale_samples"] == 2 * FRAME_SAMPLES
    track.say("new", frames=1, epoch=3)
    assert track.speaking(1) == "S"


def test_a_newer_epoch_cuts_what_still_waits_of_an_older_one() -> None:
    track = Track()
    track.say(frames=5, epoch=1)
    track.take(2)
    track.speech.feed(Listens("", 2))
    assert track.speaking(2) == ".."
    assert track.counters["output_dropped_samples"] == 3 * FRAME_SAMPLES


def test_what_the_server_cancelled_or_cleared_is_not_played_any_further() -> None:
    track = Track()
    track.say("a", frames=5)
    track.take(1)
    track.speech.feed(Ended("a", 0, "cancelled"))
    assert track.speaking(2) == ".."
    track.say("b", frames=5)
    track.take(1)
    track.speech.feed(Cleared("b"))
    assert track.speaking(1) == "u"
    track.speech.feed(Ended("b", 0, "completed"))
    assert track.speaking(1) == "."


def test_reports_follow_what_lies_before_the_ear_and_are_said_once() -> None:
    track = Track()
    track.say(frames=6)
    track.take(4)
    assert list(track.speech.reports(2 * FRAME)) == [("r", 160)]
    assert list(track.speech.reports(2 * FRAME)) == []
    track.speech.feed(Ended("r", 0, "completed"))
    track.take(4)
    assert list(track.speech.reports(8 * FRAME)) == [("r", 480)]


def test_after_the_loss_of_the_servers_session_what_came_is_said_and_epochs_begin_anew() -> None:
    track = Track()
    track.say(frames=3, epoch=7)
    track.speech.lose()
    assert track.speaking(4) == "SSS."
    track.say("new", frames=1, epoch=0)
    assert track.speaking(1) == "S"


def test_an_endless_stream_is_speech_where_it_is_loud() -> None:
    track = Track(continuous=True)
    track.say(frames=3)
    track.say(frames=0)
    assert track.speaking(3) == "SSS"
    track.speech.feed(Audio("r", 0, bytes(FRAME_SAMPLES * 2 * 8), RATE))
    assert [frame.speaking for frame in track.take(8)] == [True] * 3 + [False] * 5
    track.say(frames=2)
    assert track.speaking(2) == "SS"


def test_a_cut_of_an_endless_stream_drops_what_waits_and_lets_it_go_on() -> None:
    track = Track(continuous=True)
    track.say(frames=10)
    track.take(2)
    assert track.speech.cut(2 * FRAME) == [Cut("r", heard_ms=160, making=True)]
    assert track.speaking(1) == "."
    track.say(frames=2)
    assert track.speaking(2) == "SS"


def test_nothing_of_an_older_generation_leaves_in_ten_thousand_events_in_any_order() -> None:
    """Each piece's level names its epoch; whatever leaves after a cut must be of an epoch that was begun later."""
    drawn = np.random.default_rng(5)
    track, epoch, floor, sent = Track(), 0, 0, 0
    for number in range(10_000):
        kind = drawn.integers(0, 10)
        if kind < 6:
            said = int(drawn.integers(0, epoch + 1))
            track.say(f"r{said}", frames=float(drawn.uniform(0.1, 2)), epoch=said, level=1000 + said)
        elif kind == 6:
            track.speech.cut(track.at)
            epoch, floor = epoch + 1, epoch + 1
            track.speech.feed(EpochMoved(epoch))
        elif kind == 7:
            track.speech.feed(Ended(f"r{epoch}", epoch, "completed"))
            epoch += 1
        for frame in track.take(2):
            samples = np.frombuffer(frame.pcm, "<i2")
            heard = samples[samples > 0]
            sent += heard.size
            # A level is 1000 + epoch, and counts up to 99 above it.
            assert not heard.size or int(heard.min()) >= 1000 + floor, number
    assert sent > 0
    assert track.counters["output_stale_samples"] > 0
