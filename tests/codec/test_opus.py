"""Opus by libopus: lengths, fidelity, recovery, concealment, and what happens without the library."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from codec import opus
from codec.opus import OpusDecoder, OpusEncoder, OpusError

FRAME = 480
"""Samples of 20 ms at 24 kHz."""


def tone(seconds: float, hz: float = 440.0, rate: int = 24_000) -> bytes:
    time = np.arange(round(seconds * rate)) / rate
    return (8000 * np.sin(2 * np.pi * hz * time)).astype("<i2").tobytes()


def frames(pcm: bytes, size: int = 2 * FRAME) -> list[bytes]:
    return [pcm[start : start + size] for start in range(0, len(pcm) - size + 1, size)]


def voice(seconds: float) -> bytes:
    """Pulses through two resonances, louder and softer: enough like speech that the speech mode is chosen."""
    rng = np.random.default_rng(3)
    length = round(seconds * 16_000)
    source = np.zeros(length)
    source[:: 16_000 // 120] = 1.0
    source += 0.02 * rng.normal(size=length)
    for hz, width in ((600, 80), (1500, 120)):
        pole = np.exp(-np.pi * width / 16_000)
        first, second = 2 * pole * np.cos(2 * np.pi * hz / 16_000), -(pole**2)
        out = np.zeros(length)
        for n in range(length):
            out[n] = source[n] + first * out[n - 1] + second * out[n - 2]
        source = out
    level = 0.6 + 0.4 * np.sin(2 * np.pi * 3 * np.arange(length) / 16_000)
    return bytes((source / np.abs(source).max() * level * 9000).astype("<i2").tobytes())


def correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))


def samples(pcm: bytes) -> NDArray[np.float64]:
    return np.frombuffer(pcm, dtype="<i2").astype(np.float64)


@pytest.mark.parametrize("rate", opus.RATES)
def test_a_sound_comes_out_at_the_rate_that_was_asked_for_delayed_by_the_lookahead(rate: int) -> None:
    encoder, decoder = OpusEncoder(24_000), OpusDecoder(rate)
    out = samples(b"".join(decoder.decode(encoder.encode(frame)) for frame in frames(tone(0.5))))
    delay = encoder.lookahead * rate // opus.CLOCK
    wanted = samples(tone(0.5, rate=rate))
    assert len(out) == len(wanted)
    assert correlation(out[delay + rate // 10 :], wanted[rate // 10 : len(wanted) - delay]) > 0.98


def test_silence_after_a_reset_is_a_packet_of_three_bytes_that_makes_a_decoder_silent() -> None:
    encoder, decoder = OpusEncoder(24_000), OpusDecoder(24_000)
    for frame in frames(tone(0.2)):
        decoder.decode(encoder.encode(frame))
    encoder.reset()
    silence = encoder.encode(bytes(2 * FRAME))
    fading = samples(decoder.decode(silence))
    assert len(silence) == 3
    assert np.abs(fading[FRAME // 2 :]).max() == 0
    assert np.abs(samples(decoder.decode(silence))).max() == 0


def test_after_a_reset_nothing_of_the_old_sound_comes_out() -> None:
    encoder = OpusEncoder(24_000)
    for frame in frames(tone(0.2)):
        encoder.encode(frame)
    encoder.reset()
    fresh = OpusEncoder(24_000)
    other = frames(tone(0.2, hz=900))
    assert [encoder.encode(frame) for frame in other] == [fresh.encode(frame) for frame in other]


@pytest.mark.parametrize(
    ("toc", "ticks"),
    [(b"\xd8", 960), (b"\xd0", 480), (b"\x18", 2880), (b"\x48", 960), (b"\xd9ab", 1920), (b"\xdb\x03abc", 2880)],
)
def test_the_length_of_a_packet_stands_in_its_first_byte(toc: bytes, ticks: int) -> None:
    assert opus.packet_ticks(toc) == ticks


def test_what_is_no_packet_has_no_length() -> None:
    assert opus.packet_ticks(b"") == 0
    assert opus.packet_ticks(b"\x1b") == 0
    assert opus.packet_ticks(b"\x1b\x3f") == 0


def test_a_lost_packet_is_recovered_from_the_redundancy_of_the_next_one() -> None:
    encoder = OpusEncoder(16_000, application="voip", bitrate=24_000, loss_percent=20)
    packets = [encoder.encode(frame) for frame in frames(voice(1.5), 640)]
    lost = next(index for index in range(30, len(packets)) if opus.holds_previous(packets[index + 1]))
    whole, holed = OpusDecoder(16_000), OpusDecoder(16_000)
    for packet in packets[:lost]:
        whole.decode(packet)
        holed.decode(packet)
    truth = samples(whole.decode(packets[lost]))
    recovered = samples(holed.recover(packets[lost + 1], 960))
    assert correlation(truth, recovered) > 0.8


def test_redundancy_is_sent_only_where_loss_is_expected() -> None:
    encoder = OpusEncoder(24_000)
    packets = [encoder.encode(frame) for frame in frames(tone(0.4))]
    assert not any(opus.holds_previous(packet) for packet in packets)
    encoder.expect_loss(20)
    packets = [encoder.encode(frame) for frame in frames(tone(0.4))]
    assert any(opus.holds_previous(packet) for packet in packets)


def test_what_is_concealed_goes_on_with_the_sound_and_fades() -> None:
    encoder, decoder = OpusEncoder(24_000), OpusDecoder(24_000)
    for frame in frames(tone(0.3)):
        decoder.decode(encoder.encode(frame))
    levels = [float(np.abs(samples(decoder.conceal(960))).max()) for _ in range(40)]
    assert levels[0] > 4000
    assert levels[-1] < levels[0] / 4


def test_damage_is_an_error_and_the_stream_goes_on() -> None:
    encoder, decoder = OpusEncoder(24_000), OpusDecoder(24_000)
    first, second = (encoder.encode(frame) for frame in frames(tone(0.04)))
    decoder.decode(first)
    with pytest.raises(OpusError, match="corrupted"):
        decoder.decode(b"\xff\xff\xff")
    with pytest.raises(OpusError):
        decoder.decode(b"")
    assert len(decoder.decode(second)) == 2 * FRAME


def test_discontinuous_transmission_makes_packets_of_a_byte_or_two_in_silence() -> None:
    encoder = OpusEncoder(16_000, application="voip", dtx=True)
    sizes = [len(encoder.encode(bytes(640))) for _ in range(100)]
    assert min(sizes) <= 2


def test_wrong_values_are_refused_by_name() -> None:
    with pytest.raises(OpusError, match="rate is 44100 Hz"):
        OpusEncoder(44_100)
    with pytest.raises(OpusError, match="rate is 22050 Hz"):
        OpusDecoder(22_050)
    with pytest.raises(OpusError, match="bitrate"):
        OpusEncoder(bitrate=-5)
    with pytest.raises(OpusError, match="loss_percent 101"):
        OpusEncoder().expect_loss(101)
    with pytest.raises(OpusError, match="481 samples"):
        OpusEncoder().encode(bytes(962))


def test_closing_twice_is_closing_once() -> None:
    encoder, decoder = OpusEncoder(), OpusDecoder()
    for one in (encoder, decoder):
        one.close()
        one.close()


def test_what_is_closed_takes_nothing_more_and_has_nothing_to_forget() -> None:
    encoder, decoder = OpusEncoder(), OpusDecoder()
    packet = encoder.encode(bytes(960))
    encoder.close()
    decoder.close()
    encoder.reset()
    for use in (
        lambda: encoder.encode(bytes(960)),
        lambda: encoder.expect_loss(5),
        lambda: decoder.decode(packet),
        lambda: decoder.recover(packet, 960),
        lambda: decoder.conceal(960),
    ):
        with pytest.raises(OpusError, match="closed; make a new one"):
            use()


def test_without_a_library_the_error_says_how_to_get_one() -> None:
    code = "from codec import opus\ntry: opus.version()\nexcept opus.OpusUnavailable as error: print(error)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={opus.LIBRARY_VARIABLE: "/nonexistent/libopus.so"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install av" in run.stdout
    assert "/nonexistent/libopus.so" in run.stdout
    assert opus.LIBRARY_VARIABLE in run.stdout
