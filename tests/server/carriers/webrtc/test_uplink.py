"""The uplink buffer, with real Opus packets and a network that the test plays."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from codec.opus import OpusEncoder
from server.carriers.webrtc.uplink import CLOCK, PACKET, STALL, WAIT, Stretch, UplinkBuffer
from tests import speech

RATE = 16_000
PATH = 0.040
"""Seconds of the way without jitter."""


def encoded(seconds: float) -> list[bytes]:
    """Opus packets of people's questions, with redundancy, as a browser makes them."""
    pcm = np.concatenate([clip.pcm for clip in speech.load("questions", "tune")])[: round(seconds * RATE)]
    encoder = OpusEncoder(RATE, application="voip", bitrate=32_000, loss_percent=10)
    sound = pcm.astype("<i2").tobytes()
    return [encoder.encode(sound[start : start + 640]) for start in range(0, len(sound) - 639, 640)]


PACKETS = encoded(10.0)


@dataclass(frozen=True, slots=True)
class Sent:
    """A packet on its way: `at` is when it arrives."""

    at: float
    number: int
    timestamp: int
    payload: bytes


def stream(count: int, *, start: int = 0, timestamp: int | None = None, at: float = 0.0) -> list[Sent]:
    """Packets `start` and on, in time."""
    first = start * PACKET if timestamp is None else timestamp
    return [
        Sent(at + index * 0.02 + PATH, start + index, first + index * PACKET, PACKETS[(start + index) % len(PACKETS)])
        for index in range(count)
    ]


@dataclass(slots=True)
class Run:
    """What came out: stretches with the time at which they did."""

    buffer: UplinkBuffer
    out: list[tuple[float, Stretch]]

    @property
    def pcm(self) -> bytes:
        return b"".join(stretch.pcm for _, stretch in self.out)

    @property
    def concealed(self) -> int:
        """Ticks that are marked."""
        return sum(len(one.pcm) // 2 * 3 for _, one in self.out if one.concealed)

    def delays(self) -> NDArray[np.float64]:
        """For each 20 ms of the stream: seconds from when a path without jitter would have delivered it."""
        position = 0
        found: list[float] = []
        for at, stretch in self.out:
            position += len(stretch.pcm) // 2 * 3
            while len(found) < position // PACKET:
                found.append(at - (len(found) * 0.02 + PATH))
        return np.array(found)


def play(sent: Sequence[Sent], until: float | None = None, first_sequence: int = 65_500, rate: int = RATE) -> Run:
    """Deliver in the order of arrival, with a tick each 20 ms as the pacer has it."""
    run = Run(UplinkBuffer(rate), [])
    queue = [(one.at, index, one) for index, one in enumerate(sent)]
    heapq.heapify(queue)
    end = until if until is not None else max(one.at for one in sent) + 0.1
    clock = 0.0
    while clock < end:
        while queue and queue[0][0] <= clock:
            at, _, one = heapq.heappop(queue)
            sequence, timestamp = (first_sequence + one.number) & 0xFFFF, (4_294_960_000 + one.timestamp) & 0xFFFFFFFF
            run.out += [(at, stretch) for stretch in run.buffer.push(sequence, timestamp, one.payload, at)]
        run.out += [(clock, stretch) for stretch in run.buffer.tick(clock)]
        clock = round(clock + 0.01, 4)
    return run


def test_packets_in_order_pass_at_once() -> None:
    run = play(stream(100))
    assert len(run.pcm) == 100 * 640
    assert run.delays().max() < 1e-9
    assert run.concealed == 0
    assert run.buffer.watermark == 100 * PACKET


def test_sequence_numbers_and_timestamps_wrap() -> None:
    run = play(stream(200), first_sequence=65_530)
    assert len(run.pcm) == 200 * 640
    assert run.buffer.lost == run.buffer.late == 0


def test_packets_that_change_places_come_out_in_order_and_whole() -> None:
    sent = stream(60)
    swapped = [*sent[:20], Sent(sent[21].at + 0.001, *_rest(sent[20])), *sent[21:]]
    assert play(swapped).pcm == play(sent).pcm


def _rest(one: Sent) -> tuple[int, int, bytes]:
    return one.number, one.timestamp, one.payload


def test_a_packet_that_comes_twice_is_heard_once() -> None:
    sent = stream(30)
    run = play([*sent, sent[10]])
    assert len(run.pcm) == 30 * 640
    assert run.buffer.late == 1


def test_a_gap_waits_no_longer_than_sixty_ms_and_is_recovered_from_the_next_packet() -> None:
    sent = stream(60)
    del sent[30]
    run = play(sent)
    assert len(run.pcm) == 60 * 640
    assert run.concealed == 0
    assert run.buffer.recovered == 1
    assert run.delays().max() <= WAIT + 1e-9
    assert run.delays()[-1] < 1e-9


def test_a_gap_of_several_packets_is_concealed_and_marked_and_time_is_kept() -> None:
    sent = stream(80)
    del sent[30:34]
    run = play(sent)
    assert len(run.pcm) == 80 * 640
    assert run.concealed == 3 * PACKET
    assert run.buffer.recovered == 1
    assert run.buffer.lost == 3
    assert run.delays()[-1] < 1e-9


def test_the_sound_around_a_gap_is_the_sound_that_was_sent() -> None:
    whole, sent = stream(100), stream(100)
    del sent[50]
    one, other = (np.frombuffer(play(part).pcm, dtype="<i2").astype(float) for part in (whole, sent))
    far = slice(60 * 320, None)
    assert np.corrcoef(one[: 50 * 320], other[: 50 * 320])[0, 1] == pytest.approx(1.0)
    assert np.corrcoef(one[far], other[far])[0, 1] > 0.95


def test_the_last_packet_of_a_gap_that_nothing_follows_is_not_waited_for_for_ever() -> None:
    sent = stream(31)
    del sent[29]
    run = play(sent, until=sent[-1].at + 0.12)
    assert len(run.pcm) == 31 * 640


def test_a_stream_that_stops_goes_on_as_silence_by_the_clock() -> None:
    run = play(stream(50), until=3.0)
    behind = 3.0 - PATH - run.buffer.watermark / CLOCK
    assert 0 <= behind <= 0.06
    assert run.concealed == run.buffer.watermark - 50 * PACKET
    first = next(at for at, stretch in run.out if stretch.concealed)
    assert first - (49 * 0.02 + PATH) == pytest.approx(STALL, abs=0.011)


def test_a_sender_that_paused_without_moving_its_timestamps_is_heard_from_its_first_packet() -> None:
    sent = [*stream(50), *stream(50, start=50, timestamp=50 * PACKET, at=2.0)]
    run = play(sent)
    assert run.buffer.late == 0
    assert run.buffer.watermark == pytest.approx((3.0 + 0.02) * CLOCK, abs=3 * PACKET)
    assert run.buffer.watermark - run.concealed == 100 * PACKET


def test_a_sender_that_paused_and_moved_its_timestamps_is_heard_from_its_first_packet() -> None:
    sent = [*stream(50), *stream(50, start=50, timestamp=100 * PACKET, at=2.0)]
    run = play(sent)
    assert run.buffer.late == 0
    assert run.buffer.watermark == pytest.approx(3.0 * CLOCK, abs=PACKET)
    assert run.buffer.watermark - run.concealed == 100 * PACKET


def test_packets_that_a_stall_held_up_are_late_and_leave_no_delay() -> None:
    sent = stream(200)
    held = [Sent(max(one.at, 2.0), *_rest(one)) if 1.0 < one.at < 2.0 else one for one in sent]
    run = play(held)
    assert run.buffer.late > 30
    assert run.buffer.watermark == pytest.approx(200 * PACKET, abs=2 * PACKET)
    assert abs(run.delays()[-1]) < 0.021


def test_a_short_stall_loses_nothing() -> None:
    sent = stream(200)
    held = [Sent(max(one.at, 1.15), *_rest(one)) if 1.0 < one.at < 1.15 else one for one in sent]
    run = play(held)
    assert run.pcm == play(sent).pcm
    assert run.delays()[-1] < 1e-9


def test_a_cut_of_three_seconds_is_silence_and_then_goes_on_in_time() -> None:
    sent = [one for one in stream(400) if not 2.0 < one.at < 5.0]
    run = play(sent)
    assert run.buffer.watermark == pytest.approx(400 * PACKET, abs=PACKET)
    assert run.concealed == pytest.approx(3.0 * CLOCK, abs=2 * PACKET)
    assert run.delays()[-1] < 0.021


def test_silence_that_was_not_sent_is_put_in_where_timestamps_jump() -> None:
    sent = [*stream(50), *stream(50, start=50, timestamp=55 * PACKET, at=55 * 0.02)]
    run = play(sent)
    assert run.buffer.watermark == 105 * PACKET
    assert run.concealed == 5 * PACKET


def test_a_timestamp_that_lies_makes_no_more_silence_than_time_has_passed() -> None:
    sent = [*stream(50), *stream(10, start=52, timestamp=1 << 30, at=52 * 0.02)]
    run = play(sent)
    assert run.buffer.watermark <= 65 * PACKET


def test_a_new_stream_in_the_place_of_the_old_is_taken() -> None:
    sent = [*stream(50), *stream(50, start=20_000, timestamp=77, at=1.0)]
    run = play(sent)
    assert run.buffer.watermark == 100 * PACKET


def test_junk_is_counted_and_passed_over() -> None:
    sent = stream(30)
    junk = [Sent(one.at + 0.001, 1000 + index, one.timestamp, b"\x1b") for index, one in enumerate(sent[:5])]
    padding = [Sent(one.at + 0.002, 1100 + index, one.timestamp, b"") for index, one in enumerate(sent[:5])]
    run = play([*sent, *junk, *padding])
    assert len(run.pcm) == 30 * 640
    assert run.buffer.damaged == 5


def test_a_damaged_packet_is_concealed_and_marked() -> None:
    sent = stream(30)
    sent[10] = Sent(sent[10].at, sent[10].number, sent[10].timestamp, b"\xdb\x01" + b"\xff" * 3)
    sent[10] = Sent(sent[10].at, sent[10].number, sent[10].timestamp, b"\xd9\xff\xff\xff")
    run = play(sent)
    assert run.buffer.damaged == 1
    assert run.concealed > 0
    assert run.buffer.watermark >= 30 * PACKET


def test_packets_of_sixty_ms_pass_too() -> None:
    encoder = OpusEncoder(RATE, application="voip", bitrate=24_000)
    payload = encoder.encode(bytes(1920))
    sent = [Sent(index * 0.06 + PATH, index, index * 2880, payload) for index in range(50)]
    del sent[20]
    run = play(sent)
    assert run.buffer.watermark == 50 * 2880
    gap = [*sent[:20], *(Sent(one.at + 2.0, one.number, one.timestamp, one.payload) for one in sent[20:])]
    assert play(gap).buffer.late <= 1


@pytest.mark.parametrize(
    ("loss", "jitter", "tail"), [(0.0, 0.02, 0.04), (0.02, 0.02, 0.04), (0.05, 0.02, 0.06), (0.05, 0.0, 0.06)]
)
def test_loss_and_jitter_cost_little_time_and_leave_no_delay(loss: float, jitter: float, tail: float) -> None:
    rng = random.Random(3)
    sent = [
        Sent(one.at + max(-PATH, rng.gauss(0, jitter / 2)), *_rest(one))
        for one in stream(3000)
        if rng.random() >= loss or one.number in (0, 2999)
    ]
    run = play(sent)
    delays = run.delays()
    assert run.buffer.watermark == pytest.approx(3000 * PACKET, abs=PACKET)
    assert np.median(delays) <= 0.005
    assert np.percentile(delays, 95) <= tail
    assert np.median(delays[-500:]) <= 0.005
    if loss:
        # Whatever is not recovered was silence, which carries no redundancy.
        assert run.buffer.recovered > run.buffer.lost


def test_two_clocks_that_differ_are_followed() -> None:
    """A sender whose clock is 200 ppm fast for ten minutes, then a pause: nothing of what follows is late."""
    count = 30_000
    sent = [
        Sent(index * 0.02 * (1 - 2e-4) + PATH, index, index * PACKET, PACKETS[index % 500]) for index in range(count)
    ]
    resumed = sent[-1].at + 2.0
    sent += [
        Sent(resumed + index * 0.02, count + index, (count + index) * PACKET, PACKETS[index]) for index in range(50)
    ]
    buffer = UplinkBuffer(RATE)
    for one in sent:
        if one.number == count:
            buffer.tick(one.at - 0.01)
        buffer.push(one.number & 0xFFFF, one.timestamp & 0xFFFFFFFF, one.payload, one.at)
    assert buffer.late == 0


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_whatever_arrives_the_watermark_is_what_came_out_and_never_runs_away_from_the_clock(
    data: st.DataObject,
) -> None:
    buffer, now, out = UplinkBuffer(RATE), 10.0, 0
    sequence, timestamp = data.draw(st.integers(0, 65_535)), data.draw(st.integers(0, (1 << 32) - 1))
    for pushed in range(1, data.draw(st.integers(2, 41))):
        now += data.draw(st.sampled_from((0.0, 0.001, 0.02, 0.02, 0.02, 0.1, 0.3, 2.0)))
        sequence = (sequence + data.draw(st.sampled_from((0, 1, 1, 1, 2, 5, -1, -3, 300, 30_000)))) & 0xFFFF
        step = data.draw(st.sampled_from((0, 960, 960, 960, 1920, 48_000, -960, 1 << 30)))
        timestamp = (timestamp + step) & 0xFFFFFFFF
        payload = data.draw(st.sampled_from((PACKETS[0], PACKETS[1], PACKETS[2], b"", b"\xff", b"\x1b\x3f")))
        got = buffer.push(sequence, timestamp, payload, now)
        if data.draw(st.booleans()):
            got = [*got, *buffer.tick(now)]
        out += sum(len(stretch.pcm) // 2 * 3 for stretch in got)
        assert buffer.watermark == out
        # Every packet can bring its own length at most; all else is bounded by the time that has passed.
        assert out <= (now - 10.0) * CLOCK + (pushed + 6) * PACKET
    buffer.close()
