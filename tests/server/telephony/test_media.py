"""Media of calls: in order, concealed, decoded; packets, positions and no jump at a border."""

from __future__ import annotations

import numpy as np
import pytest

from codec import g711, g722
from codec.opus import OpusEncoder
from codec.pcm import Samples, to_bytes, to_samples
from codec.resample import Resampler
from server.dialects.checks import Rejected
from server.dialects.telephony.media import ULAW_8K, InputLane, MediaFormat, OutputLane, media_format
from sessions.core.fence import Fence
from sessions.core.timeline import TICK_RATE
from sessions.ports import OutputFrame


def tone(seconds: float, rate: int, hertz: float = 440.0, peak: float = 10_000) -> Samples:
    return np.round(peak * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.int16)


def frames(pcm: Samples, rate: int = 24_000, response: str = "r") -> list[OutputFrame]:
    """Frames of 20 ms with their content positions."""
    size, tick = rate // 50, TICK_RATE // rate
    found = []
    for number, at in enumerate(range(0, len(pcm), size)):
        piece = pcm[at : at + size]
        start = at * tick
        found.append(
            OutputFrame(
                Fence("s", 1, 0), number, response, "i", start, start + len(piece) * tick, start, to_bytes(piece), rate
            )
        )
    return found


def snr(reference: Samples, other: Samples) -> float:
    difference = other.astype(float) - reference
    return float(10 * np.log10((reference.astype(float) ** 2).sum() / (difference**2).sum()))


def band_energy(pcm: Samples, rate: int, low: float, high: float) -> float:
    """Share of the energy in a band, in dB."""
    spectrum = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm)))) ** 2
    hertz = np.fft.rfftfreq(len(pcm), 1 / rate)
    return float(10 * np.log10(spectrum[(hertz >= low) & (hertz < high)].sum() / spectrum.sum()))


@pytest.mark.parametrize("payload_ms", [10, 20, 37, 60, 400])
def test_a_call_that_is_echoed_is_as_good_as_one_pass_of_the_codec_and_has_no_jump(payload_ms: int) -> None:
    """µ-law, 8 to 24 kHz, the session's frames, 24 to 8 kHz, µ-law: against one pass of µ-law alone.

    A third of the power is spread over the whole band, the edge included.
    """
    rng = np.random.default_rng(1)
    source = (tone(2.0, 8000, 440, 6000) + tone(2.0, 8000, 1333, 3000) + rng.normal(0, 3000, 16_000)).astype(np.int16)
    codes = g711.compress(source, "ulaw")
    once = to_samples(g711.decode(codes, "ulaw"))
    lane, size = InputLane(ULAW_8K), 8 * payload_ms
    heard = b"".join(
        one.pcm
        for number, at in enumerate(range(0, len(codes), size))
        for one in lane.chunk(codes[at : at + size], number + 1, at // 8)
    )
    assert heard == to_bytes(once)

    up = Resampler(8000, 24_000)
    pieces = [up.process(to_samples(heard)[at : at + size]) for at in range(0, len(once), size)]
    middle = np.concatenate([*pieces, up.flush()])
    out = OutputLane(ULAW_8K, 20)
    packets = [packet for frame in frames(middle) for packet in out.push(frame)] + out.tail()
    back = to_samples(g711.decode(b"".join(packet.payload for packet in packets), "ulaw"))[: len(source)]
    inside = slice(400, -400)
    assert snr(source[inside], back[inside]) >= snr(source[inside], once[inside]) - 0.5
    assert band_energy(back[inside], 8000, 2000, 3400) <= band_energy(once[inside], 8000, 2000, 3400) + 3.0


def test_g711_at_its_own_rate_is_passed_through_bit_by_bit() -> None:
    codes = bytes(range(256)) * 5
    lane, out = InputLane(ULAW_8K), OutputLane(ULAW_8K, 20)
    pcm = to_samples(b"".join(one.pcm for one in lane.chunk(codes)))
    packets = [packet for frame in frames(pcm, 8000) for packet in out.push(frame)] + out.tail()
    back = b"".join(packet.payload for packet in packets)
    # The two codes of zero are one sample.
    assert back == codes.replace(b"\x7f", b"\xff")


@pytest.mark.parametrize(
    "media", [ULAW_8K, MediaFormat("l16", 16_000), MediaFormat("g722", 16_000), MediaFormat("l16", 44_100)], ids=str
)
def test_packets_are_of_one_length_and_say_where_their_last_sample_is(media: MediaFormat) -> None:
    out = OutputLane(media, 20)
    packets = [packet for frame in frames(tone(1.01, 24_000)) for packet in out.push(frame)] + out.tail()
    assert {len(packet.payload) for packet in packets} == {media.rate // 50 * media.sample_bits // 8}
    ends = [packet.end for packet in packets]
    assert ends == sorted(ends)
    assert ends[-1] == round(1.01 * TICK_RATE)
    assert all(abs(end - 960 * (number + 1)) <= 3 for number, end in enumerate(ends[:-1]))


def test_after_a_reset_nothing_of_before_is_left() -> None:
    for media in (ULAW_8K, MediaFormat("g722", 16_000), MediaFormat("opus", 16_000)):
        out, fresh = OutputLane(media, 20), OutputLane(media, 20)
        for frame in frames(tone(0.33, 24_000)):
            out.push(frame)
        out.reset()
        later = frames(tone(0.2, 24_000, 700), response="new")
        assert [out.push(frame) for frame in later] == [fresh.push(frame) for frame in later]


def chunk(number: int) -> bytes:
    return bytes([number]) * 160


def test_chunks_out_of_order_come_out_in_order() -> None:
    lane = InputLane(ULAW_8K, depth=5)
    order = [1, 2, 4, 3, 7, 6, 5, 8]
    heard = [one for number in order for one in lane.chunk(chunk(number), number, 20 * number)]
    assert [one.pcm[:2] for one in heard] == [g711.decode(bytes([number]), "ulaw") for number in range(1, 9)]
    assert not any(one.concealed for one in heard)


def test_a_chunk_that_never_comes_is_waited_for_only_so_long_and_concealed() -> None:
    lane = InputLane(ULAW_8K, depth=3)
    heard = [one for number in (1, 2, 4, 5, 6, 7) for one in lane.chunk(chunk(number), number, 20 * number)]
    assert [one.concealed for one in heard] == [False, False, True, False, False, False, False]
    assert len(heard[2].pcm) == 320
    with pytest.raises(Rejected, match="came before"):
        lane.chunk(chunk(3), 3, 60)


def test_a_gap_is_filled_with_the_last_sound_fading_and_without_a_jump() -> None:
    lane = InputLane(MediaFormat("l16", 8000))
    sound = tone(0.1, 8000, 400)
    lane.chunk(to_bytes(sound), 1, 0)
    filled, after = lane.chunk(to_bytes(sound), 2, 180)
    assert (filled.concealed, after.concealed, len(filled.pcm)) == (True, False, 2 * 640)
    samples = to_samples(filled.pcm).astype(int)
    assert abs(samples[0] - int(sound[-1])) < 3500
    assert np.abs(samples[:160]).max() > 4000
    assert np.abs(samples[480:]).max() == 0


def test_a_clock_that_jumps_is_followed_and_not_filled() -> None:
    lane = InputLane(ULAW_8K)
    assert len(lane.chunk(chunk(1), 1, 0)) == 1
    assert len(lane.chunk(chunk(1), 2, 10**12)) == 1
    assert len(lane.chunk(chunk(1), 3, 5)) == 1


def test_chunks_of_any_length_are_taken_and_absurd_ones_refused() -> None:
    lane = InputLane(ULAW_8K)
    assert [len(one.pcm) for one in lane.chunk(b"\xff", 1, 0)] == [2]
    assert lane.chunk(b"", 2, 0) == []
    with pytest.raises(Rejected, match="longer than 30 s"):
        lane.chunk(bytes(8000 * 31), 3)
    with pytest.raises(Rejected, match="even number"):
        InputLane(MediaFormat("l16", 8000)).chunk(b"abc")


def test_g722_and_opus_come_out_as_they_went_in() -> None:
    sound = tone(0.5, 16_000, 600)
    codes = g722.encode(to_bytes(sound))
    lane = InputLane(media_format("G722", 8000, "x"))
    heard = to_samples(
        b"".join(one.pcm for at in range(0, len(codes), 160) for one in lane.chunk(codes[at : at + 160]))
    )
    assert snr(sound[2000:6000], heard[2022:6022]) > 30
    opus, encoder = InputLane(media_format("OPUS", 48_000, "x")), OpusEncoder(16_000)
    [one] = opus.chunk(encoder.encode(to_bytes(sound[:320])))
    assert (len(one.pcm), one.rate) == (640, 16_000)
    with pytest.raises(Rejected, match="Opus"):
        opus.chunk(b"\xff" * 7)


@pytest.mark.parametrize(("name", "rate"), [("amr-wb", 16_000), ("audio/x-mulaw", 16_000), ("l16", 11_025), ("", 8000)])
def test_a_codec_or_rate_that_is_not_served_is_refused_by_name(name: str, rate: int) -> None:
    with pytest.raises(Rejected) as caught:
        media_format(name, rate, "start.mediaFormat")
    assert (caught.value.code, caught.value.param) == ("unsupported", "start.mediaFormat")
