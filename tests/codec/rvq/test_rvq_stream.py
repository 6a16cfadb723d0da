from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from codec.identity import CodecIdentityError
from codec.rvq.checkpoint import Checkpoint, load_checkpoint
from codec.rvq.stream import SlotInputError, StreamingRvqDecoder, StreamingRvqEncoder
from codec.rvq.synthesis import FRAME
from tests.codec.rvq.tiny import tiny_checkpoint

SLOTS, FRAMES = 3, 12
ON, OFF = np.ones(SLOTS, np.bool_), np.zeros(SLOTS, np.bool_)


def mask(*slots: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    out = OFF.copy()
    out[list(slots)] = True
    return out


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return tiny_checkpoint()


def random_codes(checkpoint: Checkpoint, frames: int = FRAMES, seed: int = 1) -> np.ndarray[Any, np.dtype[np.int64]]:
    identity = checkpoint.identity
    return np.random.default_rng(seed).integers(0, identity.codebook_size, (SLOTS, identity.codebooks, frames))


def with_pauses_and_a_reset(checkpoint: Checkpoint, frames: int, tolerance: float) -> None:
    """Frames of three slots, each at its own pace and one begun anew in the middle, equal the whole sequences."""
    codes = random_codes(checkpoint, frames)
    wave = (0.05 * np.random.default_rng(2).standard_normal((SLOTS, frames * FRAME))).astype(np.float32)
    decoder, encoder = StreamingRvqDecoder(checkpoint, SLOTS), StreamingRvqEncoder(checkpoint, SLOTS)
    chance = np.random.default_rng(3)
    at = np.zeros(SLOTS, int)
    heard: list[list[Any]] = [[] for _ in range(SLOTS)]
    coded: list[list[Any]] = [[] for _ in range(SLOTS)]
    reset_done = False
    while at.min() < frames:
        run = (chance.random(SLOTS) < 0.6) & (at < frames)
        reset = OFF.copy()
        if at[1] == frames // 2 and not reset_done:
            reset[1] = reset_done = True
            at[1] = 0
            heard[1].clear()
            coded[1].clear()
        here = np.minimum(at, frames - 1)
        pcm = decoder.decode(codes[np.arange(SLOTS), :, here], run, reset)
        frame = np.stack([wave[slot, place * FRAME : (place + 1) * FRAME] for slot, place in enumerate(here)])
        code = encoder.encode(frame, run, reset)
        assert not pcm[~run].any()
        assert not code[~run].any()
        for slot in np.flatnonzero(run):
            heard[slot].append(pcm[slot])
            coded[slot].append(code[slot])
        at += run
    assert reset_done
    whole = checkpoint.codec.decode(torch.from_numpy(codes)).numpy()
    assert np.abs(whole).max() > 0.001
    assert np.abs(np.stack([np.concatenate(parts) for parts in heard]) - whole).max() < tolerance
    expected = checkpoint.codec.encode(torch.from_numpy(wave)).numpy()
    assert np.array_equal(np.stack([np.stack(parts, 1) for parts in coded]), expected)


def test_frames_equal_the_whole_whatever_the_pauses_and_resets(checkpoint: Checkpoint) -> None:
    with_pauses_and_a_reset(checkpoint, FRAMES, 1e-6)


def test_frames_of_the_shipped_codec_equal_the_whole() -> None:
    with_pauses_and_a_reset(load_checkpoint(), 10, 1e-5)


def test_the_noise_comes_round_with_the_frame_counter(checkpoint: Checkpoint) -> None:
    frames = 70
    codes = np.repeat(random_codes(checkpoint, 1), frames, 2)
    decoder = StreamingRvqDecoder(checkpoint, SLOTS)
    heard = np.concatenate([decoder.decode(codes[:, :, at], ON, OFF) for at in range(frames)], 1)
    whole = checkpoint.codec.decode(torch.from_numpy(codes)).numpy()
    assert np.abs(heard - whole).max() < 1e-5


def test_a_slot_sounds_the_same_beside_any_neighbour(checkpoint: Checkpoint) -> None:
    codes, others = random_codes(checkpoint), random_codes(checkpoint, seed=9)
    others[0] = codes[0]
    first, second = StreamingRvqDecoder(checkpoint, SLOTS), StreamingRvqDecoder(checkpoint, SLOTS)
    for at in range(FRAMES):
        alone = first.decode(codes[:, :, at], mask(0), OFF)
        crowded = second.decode(others[:, :, at], ON, mask(1) if at == 5 else OFF)
        assert np.array_equal(alone[0], crowded[0])


def test_a_slot_begun_anew_sounds_like_a_new_one(checkpoint: Checkpoint) -> None:
    codes, wave = random_codes(checkpoint), np.random.default_rng(4).standard_normal((SLOTS, FRAME)).astype(np.float32)
    used, encoder = StreamingRvqDecoder(checkpoint, SLOTS), StreamingRvqEncoder(checkpoint, SLOTS)
    for at in range(5):
        used.decode(codes[:, :, at], ON, OFF)
        encoder.encode(0.3 * wave, ON, OFF)
    fresh = StreamingRvqDecoder(checkpoint, SLOTS)
    assert np.array_equal(used.decode(codes[:, :, 6], ON, ON), fresh.decode(codes[:, :, 6], ON, OFF))
    new = StreamingRvqEncoder(checkpoint, SLOTS)
    assert np.array_equal(encoder.encode(0.1 * wave, ON, ON), new.encode(0.1 * wave, ON, OFF))


def test_a_reset_of_a_slot_that_does_not_run_holds_for_its_next_frame(checkpoint: Checkpoint) -> None:
    codes = random_codes(checkpoint)
    used, fresh = StreamingRvqDecoder(checkpoint, SLOTS), StreamingRvqDecoder(checkpoint, SLOTS)
    for at in range(3):
        used.decode(codes[:, :, at], ON, OFF)
    used.decode(codes[:, :, 3], OFF, mask(2))
    assert np.array_equal(used.decode(codes[:, :, 4], mask(2), OFF), fresh.decode(codes[:, :, 4], mask(2), OFF))


def test_decoding_again_gives_the_same_bits(checkpoint: Checkpoint) -> None:
    codes = random_codes(checkpoint)
    first, second = StreamingRvqDecoder(checkpoint, SLOTS), StreamingRvqDecoder(checkpoint, SLOTS)
    for at in range(FRAMES):
        once = first.decode(codes[:, :, at], ON, OFF)
        assert np.array_equal(once, second.decode(codes[:, :, at], ON, OFF))
        assert once.dtype == np.float32


def test_fewer_codebooks_are_the_beginning_of_all(checkpoint: Checkpoint) -> None:
    few, full = StreamingRvqEncoder(checkpoint, SLOTS, codebooks=2), StreamingRvqEncoder(checkpoint, SLOTS)
    assert few.identity == checkpoint.identity.with_codebooks(2)
    wave = (0.1 * np.random.default_rng(5).standard_normal((SLOTS, FRAME))).astype(np.float32)
    codes = few.encode(wave, ON, OFF)
    assert np.array_equal(codes, full.encode(wave, ON, OFF)[:, :2])
    decoder = StreamingRvqDecoder(checkpoint, SLOTS, codebooks=2)
    assert decoder.identity == few.identity
    assert decoder.decode(codes, ON, OFF).shape == (SLOTS, FRAME)
    for kind in (StreamingRvqEncoder, StreamingRvqDecoder):
        with pytest.raises(CodecIdentityError, match="codebooks"):
            kind(checkpoint, SLOTS, codebooks=5)


def test_a_broken_slot_is_named_and_moves_no_one(checkpoint: Checkpoint) -> None:
    codes = random_codes(checkpoint)
    broken = codes[:, :, 1].copy()
    broken[2, 3] = 16
    decoder, untouched = StreamingRvqDecoder(checkpoint, SLOTS), StreamingRvqDecoder(checkpoint, SLOTS)
    for each in (decoder, untouched):
        each.decode(codes[:, :, 0], ON, OFF)
    with pytest.raises(SlotInputError, match=r"slots \[2\]"):
        decoder.decode(broken, ON, ON)
    assert np.array_equal(decoder.decode(broken, mask(0, 1), OFF), untouched.decode(codes[:, :, 1], mask(0, 1), OFF))


def test_samples_that_are_no_numbers_are_refused_where_they_would_be_heard(checkpoint: Checkpoint) -> None:
    encoder = StreamingRvqEncoder(checkpoint, SLOTS)
    wave = np.zeros((SLOTS, FRAME), np.float32)
    wave[1, 7] = np.nan
    with pytest.raises(SlotInputError, match=r"slots \[1\]"):
        encoder.encode(wave, ON, OFF)
    new = StreamingRvqEncoder(checkpoint, SLOTS)
    silence = np.zeros((SLOTS, FRAME), np.float32)
    assert np.array_equal(encoder.encode(wave, mask(0, 2), OFF)[0], new.encode(silence, ON, OFF)[0])


@pytest.mark.parametrize(
    ("codes", "run", "reset", "field"),
    [
        (np.zeros((2, 4), np.int64), ON, OFF, "codes"),
        (np.zeros((3, 3), np.int64), ON, OFF, "codes"),
        (np.zeros((3, 4), np.int32), ON, OFF, "codes"),
        (np.zeros((3, 4)), ON, OFF, "codes"),
        ([[0] * 4] * 3, ON, OFF, "codes"),
        (np.full((3, 4), -1), ON, OFF, "codes"),
        (np.zeros((3, 4), np.int64), np.ones(3, int), OFF, "run"),
        (np.zeros((3, 4), np.int64), ON, np.zeros(2, bool), "reset"),
    ],
)
def test_malformed_input_is_refused_by_its_name(
    checkpoint: Checkpoint, codes: Any, run: Any, reset: Any, field: str
) -> None:
    with pytest.raises(SlotInputError) as caught:
        StreamingRvqDecoder(checkpoint, SLOTS).decode(codes, run, reset)
    assert caught.value.field == field


@pytest.mark.parametrize("pcm", [np.zeros((3, 1919), np.float32), np.zeros((3, 1920)), np.zeros(1920, np.float32)])
def test_malformed_sound_is_refused(checkpoint: Checkpoint, pcm: Any) -> None:
    with pytest.raises(SlotInputError, match="pcm"):
        StreamingRvqEncoder(checkpoint, SLOTS).encode(pcm, ON, OFF)


@pytest.mark.parametrize("slots", [0, -1, 2.0, True])
def test_no_slots_are_refused(checkpoint: Checkpoint, slots: Any) -> None:
    for kind in (StreamingRvqEncoder, StreamingRvqDecoder):
        with pytest.raises(SlotInputError, match="slots"):
            kind(checkpoint, slots)


def some_at_a_time(checkpoint: Checkpoint, frames: int, tolerance: float, *, traced: bool = False) -> None:
    """Pieces of changing length of whichever slots, one of them begun anew in the middle, equal the whole sequences."""
    codes = random_codes(checkpoint, frames).transpose(0, 2, 1)
    wave = (0.05 * np.random.default_rng(2).standard_normal((SLOTS, frames * FRAME))).astype(np.float32)
    decoder, encoder = StreamingRvqDecoder(checkpoint, SLOTS), StreamingRvqEncoder(checkpoint, SLOTS)
    for each in (decoder, encoder):
        if traced:
            each.trace()
        each.reset([0, 1])
    chance = np.random.default_rng(3)
    at = np.zeros(SLOTS, int)
    heard: list[list[Any]] = [[] for _ in range(SLOTS)]
    coded: list[list[Any]] = [[] for _ in range(SLOTS)]
    reset_done = False
    while at.min() < frames:
        ready = [int(slot) for slot in chance.permutation(SLOTS) if at[slot] < frames]
        rows = ready[: 1 + int(chance.integers(len(ready)))]
        length = min(int(chance.integers(1, 6)), *(frames - int(at[slot]) for slot in rows))
        if at[0] and not reset_done:
            reset_done = True
            decoder.reset([0])
            encoder.reset([0])
            at[0] = 0
            heard[0].clear()
            coded[0].clear()
        pcm = decoder.decode_some(np.stack([codes[slot, at[slot] : at[slot] + length] for slot in rows]), rows)
        sound = np.stack([wave[slot, at[slot] * FRAME : (at[slot] + length) * FRAME] for slot in rows])
        code = encoder.encode_some(sound, rows)
        for row, slot in enumerate(rows):
            heard[slot].append(pcm[row])
            coded[slot].append(code[row])
            at[slot] += length
    assert reset_done
    whole = checkpoint.codec.decode(torch.from_numpy(codes.transpose(0, 2, 1))).numpy()
    assert np.abs(np.stack([np.concatenate(parts) for parts in heard]) - whole).max() < tolerance
    expected = checkpoint.codec.encode(torch.from_numpy(wave)).numpy()
    assert np.array_equal(np.stack([np.concatenate(parts) for parts in coded]).transpose(0, 2, 1), expected)


def test_some_frames_of_some_slots_equal_the_whole(checkpoint: Checkpoint) -> None:
    some_at_a_time(checkpoint, 20, 1e-6)


def test_some_frames_of_the_shipped_codec_equal_the_whole() -> None:
    some_at_a_time(load_checkpoint(), 20, 1e-5)


def test_a_traced_codec_equals_the_whole_as_well(checkpoint: Checkpoint) -> None:
    some_at_a_time(checkpoint, 20, 1e-6, traced=True)


def test_tracing_changes_no_bit_whatever_the_slots_and_frames() -> None:
    checkpoint, slots = load_checkpoint(), 5
    encoders = [StreamingRvqEncoder(checkpoint, slots) for _ in range(2)]
    decoders = [StreamingRvqDecoder(checkpoint, slots) for _ in range(2)]
    encoders[1].encode_some(np.ones((1, FRAME), np.float32), [2])  # which tracing forgets
    encoders[1].trace()
    decoders[1].trace()
    chance = np.random.default_rng(6)
    for rows, frames in (([2], 2), ([0, 4, 2], 1), ([2, 1], 8), ([3], 1), ([0, 1, 2, 3, 4], 2)):
        wave = (0.1 * chance.standard_normal((len(rows), frames * FRAME))).astype(np.float32)
        codes, traced = (encoder.encode_some(wave, rows) for encoder in encoders)
        assert np.array_equal(codes, traced)
        heard, again = (decoder.decode_some(codes, rows) for decoder in decoders)
        assert np.array_equal(heard, again)


def test_the_noise_of_long_pieces_comes_round_as_well(checkpoint: Checkpoint) -> None:
    codes = random_codes(checkpoint, 130)
    decoder = StreamingRvqDecoder(checkpoint, SLOTS)
    parts = [decoder.decode_some(codes[1:2, :, at : at + 50].transpose(0, 2, 1), [1]) for at in range(0, 130, 50)]
    whole = checkpoint.codec.decode(torch.from_numpy(codes[1:2])).numpy()
    assert np.abs(np.concatenate(parts, 1) - whole).max() < 1e-5


def test_a_slot_with_numbers_that_are_none_is_named_and_the_next_tenant_hears_nothing_of_it(
    checkpoint: Checkpoint,
) -> None:
    encoder, fresh = StreamingRvqEncoder(checkpoint, SLOTS), StreamingRvqEncoder(checkpoint, SLOTS)
    wave = np.random.default_rng(1).standard_normal((2, 2 * FRAME)).astype(np.float32)
    encoder.encode_some(wave, [2, 0])
    broken = wave.copy()
    broken[1, 5] = np.inf
    with pytest.raises(SlotInputError, match=r"slots \[0\]"):
        encoder.encode_some(broken, [2, 0])
    encoder.reset([2])
    assert np.array_equal(encoder.encode_some(wave[:1], [2]), fresh.encode_some(wave[:1], [2]))


@pytest.mark.parametrize("slots", [[], [0, 0], [3], [-1], [True], [1.0]])
def test_slots_that_are_not_there_are_refused(checkpoint: Checkpoint, slots: Any) -> None:
    codes, wave = np.zeros((len(slots), 1, 4), np.int64), np.zeros((len(slots), FRAME), np.float32)
    decoder, encoder = StreamingRvqDecoder(checkpoint, SLOTS), StreamingRvqEncoder(checkpoint, SLOTS)
    for call in (
        lambda: decoder.decode_some(codes, slots),
        lambda: encoder.encode_some(wave, slots),
        lambda: decoder.reset(slots),
        lambda: encoder.reset(slots),
    ):
        with pytest.raises(SlotInputError, match="slots"):
            call()


@pytest.mark.parametrize(
    "codes",
    [
        np.zeros((1, 0, 4), np.int64),
        np.zeros((1, 4), np.int64),
        np.zeros((2, 1, 4), np.int64),
        np.zeros((1, 1, 3), np.int64),
        np.zeros((1, 1, 4)),
        np.full((1, 1, 4), 16),
        [[[0] * 4]],
    ],
)
def test_malformed_pieces_of_codes_are_refused(checkpoint: Checkpoint, codes: Any) -> None:
    with pytest.raises(SlotInputError, match="codes"):
        StreamingRvqDecoder(checkpoint, SLOTS).decode_some(codes, [1])


@pytest.mark.parametrize(
    "pcm", [np.zeros((1, 1919), np.float32), np.zeros((1, 0), np.float32), np.zeros((1, 1920)), np.zeros(1920)]
)
def test_malformed_pieces_of_sound_are_refused(checkpoint: Checkpoint, pcm: Any) -> None:
    with pytest.raises(SlotInputError, match="pcm"):
        StreamingRvqEncoder(checkpoint, SLOTS).encode_some(pcm, [1])
