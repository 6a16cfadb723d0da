"""The embedded engine with a codec between talker and lane; the codec is a tiny one of the true architecture."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from codec.frames import CodecFrame
from codec.identity import CodecIdentity
from codec.pcm import to_samples
from codec.rvq.checkpoint import Checkpoint
from codec.rvq.shipped import SHIPPED
from codec.rvq.stream import StreamingRvqDecoder
from codec.rvq.synthesis import FRAME
from codec.rvq.utterance import decode_utterance
from models.families.embedded import voice_codec
from models.families.embedded.engine import EmbeddedEngine
from models.families.embedded.thinker import TextPiece
from models.families.embedded.voice_codec import VOICES, Utterance, VoiceCodec, VoiceCodecError
from sessions.codes_track import CodedPcm, CodeSpan
from sessions.core.config import SessionConfig
from sessions.core.effects import GrantCredit
from sessions.core.events import EngineAudio, EngineDone, EngineFailed, EngineStage, EngineWords
from sessions.core.timeline import from_ms
from tests.codec.rvq.tiny import tiny_checkpoint

from ..hearing import PATIENCE, Ear, Hummer, Reciter, fence, shut, start

TEXT = "Yes, it is. Paris is the capital of France. Seven more words of no use follow."


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return tiny_checkpoint()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small products are slower on two threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def codec_of(checkpoint: Checkpoint, slots: int = 4) -> VoiceCodec:
    return VoiceCodec(checkpoint, frozenset({"default"}), slots=slots)


def engine_of(codec: VoiceCodec | None, ear: Ear, *sessions: str, text: str = TEXT, **more: bool) -> EmbeddedEngine:
    engine = EmbeddedEngine(Reciter(TextPiece(text)), Hummer(), max_sessions=8, codec=codec, **more)
    for session in sessions or ("s",):
        engine.open(fence(session), SessionConfig(), ear)
    return engine


def answer(codec: VoiceCodec | None, text: str = TEXT) -> Ear:
    ear = Ear()
    engine = engine_of(codec, ear, text=text)
    with shut(engine):
        engine.start(start())
        assert isinstance(ear.wait_for_end(), EngineDone)
    return ear


def spans(ear: Ear, response: str = "r") -> list[tuple[CodeSpan, bytes]]:
    return [
        (pcm.span, bytes(pcm))
        for event, pcm in ear.heard
        if isinstance(event, EngineAudio) and event.response == response and isinstance(pcm, CodedPcm)
    ]


def decoded(ear: Ear, checkpoint: Checkpoint, response: str = "r") -> bytes:
    """What a reader of the codes alone makes of them."""
    decoder = StreamingRvqDecoder(checkpoint, 1)
    frames: dict[int, list[tuple[int, ...]]] = {}
    for span, _ in spans(ear, response):
        assert span.first == len(frames.setdefault(span.stream, []))
        frames[span.stream] += span.frames
    sounds = {stream: decode_utterance(decoder, np.array(codes)) for stream, codes in frames.items()}
    heard = b""
    for span, pcm in spans(ear, response):
        # Positions count from the codec's first sample, of which the delay is left out.
        begin = span.offset - 2 * 480
        heard += sounds[span.stream][begin : begin + len(pcm)]
    return heard


def test_codes_keep_words_times_and_length_of_what_was_said(checkpoint: Checkpoint) -> None:
    plain, coded = answer(None), answer(codec_of(checkpoint))
    assert coded.words() == plain.words()
    assert coded.length() == plain.length()
    assert len(coded.pcm()) == len(plain.pcm())
    assert coded.pcm() != plain.pcm()
    assert [event.stage for event in coded.events(EngineStage)] == ["first_token", "first_clause", "first_audio"]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["one", "seven", "antidisestablishment", "a.", "No!", "well,"]), min_size=1))
def test_whatever_is_said_comes_out_in_its_length(words: list[str]) -> None:
    text = " ".join(words)
    plain, coded = answer(None, text), answer(codec_of(tiny_checkpoint()), text)
    assert (coded.words(), coded.length()) == (plain.words(), plain.length())
    starts = [event.start for event in coded.audio()]
    assert starts == [0, *(event.end for event in coded.audio()[:-1])]


def test_words_come_before_the_first_of_their_audio(checkpoint: Checkpoint) -> None:
    ear = answer(codec_of(checkpoint))
    told = 0
    for event, _ in ear.heard:
        if isinstance(event, EngineWords):
            told = event.words[-1].end
        elif isinstance(event, EngineAudio):
            assert event.end <= told


def test_all_audio_comes_with_its_codes_which_give_the_same_samples_again(checkpoint: Checkpoint) -> None:
    codec = codec_of(checkpoint)
    ear = answer(codec)
    assert b"".join(pcm for _, pcm in spans(ear)) == ear.pcm()
    assert {span.format for span, _ in spans(ear)} == {codec.format}
    assert decoded(ear, checkpoint) == ear.pcm()


def test_the_first_sound_takes_two_frames_and_no_more(checkpoint: Checkpoint) -> None:
    span, pcm = spans(answer(codec_of(checkpoint)))[0]
    assert (span.offset, span.first, len(span.frames)) == (960, 0, 2)
    assert len(pcm) == 2 * (2 * FRAME - 480)


def test_audio_stops_at_the_credit_and_chunks_beyond_it_wait(checkpoint: Checkpoint) -> None:
    ear, credit = Ear(), from_ms(300)
    engine = engine_of(codec_of(checkpoint), ear, text=" ".join(["word"] * 20) + ".")
    with shut(engine):
        engine.start(start(credit=credit))
        ear.wait(lambda ear: ear.length() == credit)
        engine.grant(GrantCredit(fence(), "r", 2 * credit))
        ear.wait(lambda ear: ear.length() == 2 * credit)
        assert engine.counters["frames_decoded"] <= 2 + 8
        engine.grant(GrantCredit(fence(), "r", from_ms(60_000)))
        ear.wait_for_end()
    assert decoded(ear, checkpoint) == ear.pcm()


def test_responses_side_by_side_sound_as_they_do_alone(checkpoint: Checkpoint) -> None:
    alone, codec, ear = answer(codec_of(checkpoint)), codec_of(checkpoint, slots=8), Ear()
    sessions = [f"s{number}" for number in range(6)]
    engine = engine_of(codec, ear, *sessions)
    with shut(engine):
        for session in sessions:
            engine.start(start(session, at=fence(session)))
        for session in sessions:
            ear.wait_for_end(session)
        assert codec.taken == 0
    for session in sessions:
        apart = to_samples(ear.pcm(session)).astype(int) - to_samples(alone.pcm())
        # Rounding follows the size of the batch.
        assert np.abs(apart).max() <= 1
        assert ear.words(session) == alone.words()


def test_more_responses_than_slots_take_turns(checkpoint: Checkpoint) -> None:
    ear, codec = Ear(), codec_of(checkpoint, slots=2)
    sessions = [f"s{number}" for number in range(7)]
    engine = engine_of(codec, ear, *sessions)
    with shut(engine):
        for session in sessions:
            engine.start(start(session, at=fence(session)))
        for session in sessions:
            assert isinstance(ear.wait_for_end(session), EngineDone)
    assert {ear.length(session) for session in sessions} == {ear.length("s0")}
    assert codec.taken == 0


def test_chunks_of_one_length_go_together_most_urgent_first() -> None:
    assert VoiceCodec.together([]) == []
    assert VoiceCodec.together([8]) == [0]
    assert VoiceCodec.together([2, 8, 2, 4]) == [0, 2]
    assert VoiceCodec.together([8] * 9) == [0, 1, 2, 3]


# --- interruption ---------------------------------------------------------------------------------------------------


def test_a_slot_that_was_cut_off_says_nothing_in_the_next_voice(checkpoint: Checkpoint) -> None:
    text = "Seven words that are in one clause."
    fresh, codec, ear = answer(codec_of(checkpoint, slots=1), text), codec_of(checkpoint, slots=1), Ear()
    engine = engine_of(codec, ear, text=text)
    with shut(engine):
        engine.start(start("old", credit=from_ms(100)))
        ear.wait(lambda ear: ear.length("old") == from_ms(100))
        assert codec.taken == 1
        engine.cancel(fence(), "old")
        assert codec.taken == 0
        engine.start(start())
        ear.wait_for_end()
    assert ear.pcm() == fresh.pcm()
    assert ear.length("old") == from_ms(100)


def test_random_interruptions_leave_no_stale_sound_and_no_slot(checkpoint: Checkpoint) -> None:
    chance, codec, ear = random.Random(4), codec_of(checkpoint, slots=3), Ear()
    sessions = ("a", "b", "c")
    engine = engine_of(codec, ear, *sessions)
    epochs = dict.fromkeys(sessions, 0)
    begun: dict[str, tuple[str, int]] = {}
    expected = answer(codec_of(checkpoint)).pcm()
    with shut(engine):
        for number in range(60):
            session, response = chance.choice(sessions), f"r{number}"
            begun[response] = (session, epochs[session])
            engine.start(
                start(response, at=fence(session, epochs[session]), credit=from_ms(chance.choice([0, 150, 900])))
            )
            if chance.random() < 0.5:
                # Whatever the session that was asked goes on saying, something is on its way by then.
                at = len(ear.heard)
                ear.wait(lambda ear, at=at: len(ear.heard) > at or not engine.active)  # type: ignore[misc]
            cut = chance.choice(sessions)
            epochs[cut] += 1
            engine.advance(fence(cut, epochs[cut]))
        for session in sessions:
            epochs[session] += 1
            engine.advance(fence(session, epochs[session]))
        engine.start(start("last", at=fence("a", epochs["a"])))
        ear.wait_for_end("last")
        assert engine.active == 0
        assert codec.taken == 0
    for event, _ in ear.heard:
        if isinstance(event, EngineAudio) and event.response != "last":
            session, epoch = begun[event.response]
            assert (event.fence.session, event.fence.epoch) == (session, epoch)
    assert ear.pcm("last") == expected
    for response in begun:
        assert decoded(ear, checkpoint, response) == ear.pcm(response)


def after_first(
    codec: VoiceCodec, monkeypatch: pytest.MonkeyPatch, stage: str, act: Callable[[], None]
) -> threading.Event:
    """Have `act` happen while the first chunk is between `stage` and what follows; the event tells that it has."""
    real, acted = getattr(codec, stage), threading.Event()

    def between(*arguments: object) -> object:
        result = real(*arguments)
        if not acted.is_set():
            act()
            acted.set()
        return result

    monkeypatch.setattr(codec, stage, between)
    return acted


@pytest.mark.parametrize("stage", ["encode", "decode"])
def test_what_is_in_the_codec_when_its_response_is_cut_is_not_heard(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    ear, codec = Ear(), codec_of(checkpoint)
    engine = engine_of(codec, ear)
    cut = after_first(codec, monkeypatch, stage, lambda: engine.advance(fence(epoch=1)))
    with shut(engine):
        engine.start(start("old"))
        assert cut.wait(PATIENCE)
        engine.start(start("new", at=fence(epoch=1)))
        ear.wait_for_end("new")
        assert engine.counters["codes_stale"] == 1
        assert codec.taken == 0
    assert not ear.audio("old")
    assert ear.pcm("new") == answer(codec_of(checkpoint)).pcm()


# --- faults ---------------------------------------------------------------------------------------------------------


def test_samples_that_are_no_numbers_end_their_response_alone(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear, codec = Ear(), codec_of(checkpoint)
    engine = engine_of(codec, ear, "good", "bad")
    real, bad = codec.decode, []

    def broken(batch: Sequence[Utterance], frames: Sequence[Sequence[CodecFrame]]) -> list[NDArray[np.float32]]:
        heard = real(batch, frames)
        if not bad:
            bad.append(batch[0].number)
        return [
            sound * np.nan if utterance.number in bad else sound for sound, utterance in zip(heard, batch, strict=True)
        ]

    monkeypatch.setattr(codec, "decode", broken)
    with shut(engine):
        engine.start(start("bad", at=fence("bad")))
        end = ear.wait_for_end("bad")
        assert isinstance(end, EngineFailed)
        assert end.code == "codec_failed"
        engine.start(start("good", at=fence("good")))
        assert isinstance(ear.wait_for_end("good"), EngineDone)
        assert codec.taken == 0
    assert not ear.audio("bad")
    assert ear.pcm("good") == answer(codec_of(checkpoint)).pcm()


def test_a_codec_that_breaks_ends_the_response_and_the_next_one_is_spoken(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear, codec = Ear(), codec_of(checkpoint)
    engine = engine_of(codec, ear)

    def broken(*_: object) -> object:
        raise MemoryError

    with shut(engine):
        with monkeypatch.context() as patch:
            patch.setattr(codec, "encode", broken)
            engine.start(start("bad"))
            end = ear.wait_for_end("bad")
        assert isinstance(end, EngineFailed)
        assert (end.code, "MemoryError" in end.message) == ("codec_failed", True)
        engine.start(start())
        ear.wait_for_end()
        assert codec.taken == 0
    assert ear.pcm() == answer(codec_of(checkpoint)).pcm()


@pytest.mark.parametrize(
    "change", [{"version": "other"}, {"name": "another"}, {"codebooks": 3, "delays": (0, 0, 0)}, {"codebook_size": 8}]
)
def test_codes_of_another_codec_are_refused_at_the_border(checkpoint: Checkpoint, change: dict[str, object]) -> None:
    ear, codec = Ear(), codec_of(checkpoint)
    engine = engine_of(codec, ear)
    values = {**codec.identity.to_record(), "delays": codec.identity.delays, **change}
    codec.identity = CodecIdentity(**values)  # type: ignore[arg-type]
    with shut(engine):
        engine.start(start())
        end = ear.wait_for_end()
    assert isinstance(end, EngineFailed)
    assert (end.code, "codec: made with" in end.message) == ("transfer_refused", True)
    assert not ear.audio()


def test_a_frame_that_the_decoder_has_no_codes_for_is_refused(checkpoint: Checkpoint) -> None:
    codec = codec_of(checkpoint)
    utterance = codec.begin(bytes(20_000), (), 0)
    frames = utterance.frames_of(np.full((2, 4), 16))
    with pytest.raises(ValueError, match="outside"):
        codec.decode([utterance], [frames])


# --- voices ---------------------------------------------------------------------------------------------------------


def test_a_voice_that_the_codec_does_not_know_goes_as_pcm_and_that_is_said_once(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    ear = Ear()
    engine = engine_of(codec_of(checkpoint), ear)
    with shut(engine), caplog.at_level(logging.WARNING):
        for response in ("one", "two"):
            engine.start(start(response, voice="stranger"))
            ear.wait_for_end(response)
    assert ear.pcm("one") == ear.pcm("two") == answer(None).pcm()
    assert [record.getMessage() for record in caplog.records if "'stranger'" in record.getMessage()] == [
        "voice 'stranger' goes as PCM: the codec talkover-rvq/test 4x16 at 12.5 Hz was not trained on it"
    ]


def test_where_codes_alone_are_asked_for_such_a_voice_is_refused(checkpoint: Checkpoint) -> None:
    ear = Ear()
    engine = engine_of(codec_of(checkpoint), ear, codes_only=True)
    with shut(engine):
        engine.start(start(voice="stranger"))
        end = ear.wait_for_end()
        engine.start(start("known"))
        assert isinstance(ear.wait_for_end("known"), EngineDone)
    assert isinstance(end, EngineFailed)
    assert (end.code, "default" in end.message) == ("voice_without_codec", True)
    assert not ear.audio()


def test_a_codec_of_another_rate_and_codes_without_a_codec_are_refused(checkpoint: Checkpoint) -> None:
    codec = codec_of(checkpoint)
    codec.identity = replace(codec.identity, sample_rate=16_000)
    with pytest.raises(ValueError, match="24000 Hz"):
        EmbeddedEngine(Reciter(), Hummer(), codec=codec)
    with pytest.raises(ValueError, match="codes_only"):
        EmbeddedEngine(Reciter(), Hummer(), codes_only=True)


def test_weights_that_cannot_be_used_are_told_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(voice_codec, "SHIPPED", tmp_path / "cut.safetensors")
    with pytest.raises(VoiceCodecError, match=r"cut\.safetensors is not there"):
        VoiceCodec.load(slots=1)
    (tmp_path / "cut.safetensors").write_bytes(SHIPPED.read_bytes()[:100_000])
    with pytest.raises(VoiceCodecError, match="fetch it again"):
        VoiceCodec.load(slots=1)


# --- the voice and the codec that are shipped -----------------------------------------------------------------------


@pytest.mark.models
@pytest.mark.parametrize("text", ["The seven bells of Paris ring at noon.", "Please take the second door on the left."])
def test_the_shipped_codec_keeps_the_words_of_the_embedded_voice_in_their_places(text: str) -> None:
    from models.families.embedded.talker_hibari import HibariTalker

    talker, codec = HibariTalker(), VoiceCodec.load(slots=2)
    assert VOICES[codec.identity.name, codec.identity.version] == set(talker.voices)
    heard = []
    for path in (None, codec):
        ear = Ear()
        engine = EmbeddedEngine(Reciter(TextPiece(text)), talker, codec=path)
        with shut(engine):
            engine.open(fence(), SessionConfig(), ear)
            engine.start(start())
            ear.wait_for_end()
        heard.append((ear.words(), to_samples(ear.pcm()).astype(float)))
    (words, said), (words_coded, coded) = heard
    assert words_coded == words
    assert len(coded) == len(said)
    # The harmonics' phases are the decoder's own, so envelopes of 10 ms are compared.
    window = np.hanning(240) / np.hanning(240).sum()
    left, right = (np.convolve(np.abs(samples), window, "same") for samples in (said, coded))
    assert np.corrcoef(left, right)[0, 1] > 0.9
    spectra = [np.fft.rfft(envelope - envelope.mean(), 2 * len(said)) for envelope in (left, right)]
    alike = np.roll(np.fft.irfft(spectra[1] * spectra[0].conj()), len(said))
    assert abs(int(np.argmax(alike)) - len(said)) <= 24  # 1 ms
    assert abs(20 * np.log10(np.std(coded) / np.std(said))) < 1.5
