"""Queue, gate and packets, with the real encoder and a decoder as the peer's ear."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from codec.opus import OpusDecoder, OpusEncoder
from server.carriers.webrtc.downlink import PACKET, SILENCE, Downlink, Piece, Release
from sessions.core.fence import OUT_OF_BAND, Fence
from sessions.core.notices import Notice, OutputText, PlaybackStarted, ResponseClosed, ResponseView
from sessions.ports import OutputFrame

RATE = 24_000
OLD, NEW = Fence("s", 1, 0), Fence("s", 1, 1)
BESIDE = Fence("s", 1, OUT_OF_BAND)
ANNOUNCED = PlaybackStarted("r")
CLOSED = ResponseClosed(ResponseView("r", "completed", "audio"))


def tone(ms: int, hz: float, phase_ms: int = 0) -> bytes:
    time = (np.arange(ms * RATE // 1000) + phase_ms * RATE // 1000) / RATE
    return bytes((9000 * np.sin(2 * np.pi * hz * time)).astype("<i2").tobytes())


def frame(
    number: int, fence: Fence = OLD, *, hz: float = 440.0, ms: int = 20, response: str = "r", start: int | None = None
) -> OutputFrame:
    first = number * ms * 48 if start is None else start
    return OutputFrame(fence, number, response, "i", first, first + ms * 48, 0, tone(ms, hz, first // 48), RATE)


class Ear:
    """Decodes what is due, packet by packet."""

    def __init__(self) -> None:
        self.stale = 0
        self.downlink = Downlink(OpusEncoder(RATE), self._count)
        self._decoder = OpusDecoder(RATE)

    def _count(self, frames: int) -> None:
        self.stale += frames

    def next(self) -> tuple[Release, NDArray[np.float64]]:
        release = self.downlink.next()
        return release, np.frombuffer(self._decoder.decode(release.payload), dtype="<i2").astype(float)

    def packets(self, count: int) -> tuple[list[Release], NDArray[np.float64]]:
        got = [self.next() for _ in range(count)]
        return [release for release, _ in got], np.concatenate([sound for _, sound in got])


def level(sound: NDArray[np.float64], hz: float) -> float:
    """Amplitude of one tone."""
    time = np.arange(len(sound)) / RATE
    return float(2 * np.abs(np.mean(sound * np.exp(-2j * np.pi * hz * time))))


def test_without_audio_there_are_packets_of_silence() -> None:
    releases, sound = Ear().packets(5)
    assert [release.payload for release in releases] == [SILENCE] * 5
    assert np.abs(sound).max() == 0


def test_what_is_admitted_is_heard_and_each_packet_says_which_content_it_carries() -> None:
    ear = Ear()
    for number in range(10):
        ear.downlink.admit(frame(number))
    releases, sound = ear.packets(13)
    assert releases[0].pieces == []
    assert [piece for release in releases for piece in release.pieces] == [
        Piece("r", number * PACKET, PACKET, 0) for number in range(10)
    ]
    assert level(sound[1440:4800], 440) > 7000
    assert releases[11].payload != SILENCE
    assert releases[12].payload == SILENCE


def test_frames_of_any_length_fill_packets_of_twenty_ms() -> None:
    ear = Ear()
    for number in range(10):
        ear.downlink.admit(frame(number, ms=30))
    releases, _ = ear.packets(17)
    content = [(piece.start, piece.length) for release in releases for piece in release.pieces]
    assert content[:4] == [(0, 960), (960, 480), (1440, 480), (1920, 960)]
    assert sum(length for _, length in content) == 10 * 30 * 48
    ends = {start + length for start, length in content}
    assert all(start in ends or start == 0 for start, _ in content)


def test_a_last_piece_that_fills_no_packet_is_followed_by_silence_in_it() -> None:
    ear = Ear()
    ear.downlink.admit(frame(0, ms=12))
    releases, sound = ear.packets(5)
    assert [piece.length for release in releases for piece in release.pieces] == [12 * 48]
    assert np.abs(sound[3 * 480 :]).max() < 50


def test_a_hold_stops_the_sound_and_a_resume_goes_on_at_the_next_sample() -> None:
    ear = Ear()
    for number in range(10):
        ear.downlink.admit(frame(number))
    ear.packets(5)
    ear.downlink.hold()
    releases, sound = ear.packets(10)
    assert all(not release.pieces for release in releases)
    assert np.abs(sound[2 * 480 :]).max() < 50
    ear.downlink.resume()
    releases, _ = ear.packets(7)
    pieces = [piece.start for release in releases for piece in release.pieces]
    assert pieces == [number * PACKET for number in range(4, 10)]


def test_after_a_flush_no_sample_of_the_old_epoch_is_heard() -> None:
    ear = Ear()
    for number in range(10):
        ear.downlink.admit(frame(number, hz=440))
    ear.packets(6)
    assert ear.downlink.flush(NEW) == 5
    for number in range(10):
        ear.downlink.admit(frame(number, NEW, hz=1500))
    releases, sound = ear.packets(12)
    assert releases[0].payload == SILENCE
    assert np.abs(sound[240:480]).max() < 30
    assert level(sound[480:4800], 440) < 5
    assert level(sound[960:4800], 1500) > 7000
    assert ear.stale == 0


def test_the_flush_makes_no_difference_to_how_the_new_sound_is_encoded() -> None:
    ear, fresh = Ear(), Ear()
    for number in range(10):
        ear.downlink.admit(frame(number))
    ear.packets(6)
    ear.downlink.flush(NEW)
    fresh.downlink.flush(NEW)
    for one in (ear, fresh):
        for number in range(10):
            one.downlink.admit(frame(number, NEW, hz=900))
    assert [ear.downlink.next().payload for _ in range(12)] == [fresh.downlink.next().payload for _ in range(12)]


def test_a_frame_of_a_dead_epoch_stops_at_the_gate_and_is_counted() -> None:
    ear = Ear()
    ear.downlink.flush(NEW)
    ear.downlink.admit(frame(0, OLD))
    ear.downlink.admit(frame(0, NEW, hz=900))
    releases, sound = ear.packets(4)
    assert ear.stale == 1
    assert [piece.response for release in releases for piece in release.pieces] == ["r"]
    assert level(sound[480:], 440) < 100


def test_a_sound_begins_and_goes_on_with_a_rise() -> None:
    ear = Ear()
    ear.packets(1)
    ear.downlink.admit(frame(0, hz=1000))
    ear.downlink.admit(frame(1, hz=1000))
    _, sound = ear.packets(3)
    assert np.abs(sound[:160]).max() < 0.2 * np.abs(sound[480:960]).max()


def test_notices_go_out_behind_the_audio_that_they_followed() -> None:
    ear = Ear()
    ear.packets(1)
    assert not ear.downlink.follow(ANNOUNCED)
    ear.downlink.admit(frame(0))
    caption = OutputText("r", 0, "i", "one", True)
    assert ear.downlink.follow(caption)
    ear.downlink.admit(frame(1))
    assert ear.downlink.follow(CLOSED)
    assert [one.notices for one in ear.packets(3)[0]] == [[caption], [CLOSED], []]


def test_held_audio_holds_its_notices_too() -> None:
    ear = Ear()
    ear.downlink.hold()
    ear.downlink.admit(frame(0))
    ear.downlink.follow(CLOSED)
    assert all(not release.notices for release in ear.packets(5)[0])
    ear.downlink.resume()
    assert ear.packets(1)[0][0].notices == [CLOSED]


def test_a_flush_drops_the_captions_of_what_was_not_heard_and_keeps_the_other_notices() -> None:
    ear = Ear()
    ear.packets(1)
    said, unsaid = OutputText("r", 0, "i", "said", True), OutputText("r", 0, "i", "unsaid", True)
    ear.downlink.admit(frame(0))
    ear.downlink.follow(said)
    ear.packets(1)
    ear.downlink.admit(frame(1))
    ear.downlink.follow(unsaid)
    ear.downlink.follow(CLOSED)
    ear.downlink.flush(NEW)
    told: list[Notice] = [notice for release in ear.packets(3)[0] for notice in release.notices]
    assert told == [CLOSED]


def test_a_response_outside_the_conversation_sounds_when_nothing_else_does_and_survives_a_flush() -> None:
    ear = Ear()
    ear.packets(1)
    ear.downlink.admit(frame(0, BESIDE, hz=1500, response="x"))
    ear.downlink.admit(frame(0))
    ear.downlink.follow(ResponseClosed(ResponseView("x", "completed", "audio", aside=True)))
    releases, _ = ear.packets(1)
    assert releases[0].pieces[0].response == "r"
    ear.downlink.flush(NEW)
    releases, sound = ear.packets(3)
    assert level(sound[480:960], 1500) > 3000
    assert all(not release.pieces for release in releases)
    assert [notice for release in releases for notice in release.notices] != []


def test_what_waits_is_counted_to_the_byte() -> None:
    ear = Ear()
    ear.packets(1)
    ear.downlink.admit(frame(0, ms=30))
    ear.downlink.admit(frame(0, BESIDE, response="x"))
    assert ear.downlink.waiting == 1440 + 960
    ear.packets(1)
    assert ear.downlink.waiting == 480 + 960
    ear.downlink.flush(NEW)
    assert ear.downlink.waiting == 960
    ear.packets(3)
    assert ear.downlink.waiting == 0
    assert not ear.downlink


def test_at_the_end_of_the_session_held_audio_is_not_waited_for() -> None:
    ear = Ear()
    ear.downlink.admit(frame(0))
    ear.downlink.follow(CLOSED)
    ear.downlink.hold()
    ear.downlink.release_held()
    releases, _ = ear.packets(2)
    assert [notice for release in releases for notice in release.notices] == [CLOSED]
    assert not ear.downlink


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("admit"), st.sampled_from((10, 20, 30, 47))),
            st.tuples(st.sampled_from(("hold", "resume", "flush", "next", "late", "beside")), st.integers(1, 6)),
        ),
        max_size=60,
    )
)
def test_whatever_happens_each_sample_is_sent_once_in_order_or_cleared_and_none_after_its_epoch(
    happens: list[tuple[str, int]],
) -> None:
    ear = Ear()
    epoch, number, held = 0, 0, False
    ends: dict[int, int] = {}
    sent: dict[str, int] = {}
    for what, count in happens:
        match what:
            case "admit":
                start = ends.get(epoch, 0)
                fence = Fence("s", 1, epoch)
                ear.downlink.admit(frame(number, fence, ms=count, response=f"r{epoch}", start=start))
                ends[epoch] = start + count * 48
                number += 1
            case "late" if epoch:
                ear.downlink.admit(frame(number, Fence("s", 1, epoch - 1), response="late", start=0))
            case "beside":
                ear.downlink.admit(frame(number, BESIDE, response="x", start=0))
            case "hold":
                ear.downlink.hold()
                held = True
            case "resume":
                ear.downlink.resume()
                held = False
            case "flush":
                epoch += 1
                ear.downlink.flush(Fence("s", 1, epoch))
                held = False
            case _:
                for _ in range(count):
                    release, _ = ear.next()
                    assert not (held and release.pieces)
                    for piece in release.pieces:
                        assert piece.response == f"r{epoch}"
                        assert piece.start == sent.get(piece.response, 0)
                        sent[piece.response] = piece.start + piece.length
                        assert piece.offset + piece.length <= PACKET
    ear.downlink.resume()
    ear.packets(sum(end for end in ends.values()) // PACKET + 2 * number + 10)
    assert not ear.downlink
    assert all(sent[response] <= ends[int(response[1:])] for response in sent)
