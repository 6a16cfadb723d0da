"""The stages against transformers' own `generate`, which makes the whole text first, then all codes, then the sound."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from models.families.qwen3_omni import tiny
from models.families.qwen3_omni.code2wav import Code2Wav, Track, Window
from models.families.qwen3_omni.encoders import Encoders, sound_positions
from models.families.qwen3_omni.media import Medium, audio, image
from models.families.qwen3_omni.omni import Omni
from models.families.qwen3_omni.prompt import Prompt, Turn, build
from models.families.qwen3_omni.talker import Opening, Talker
from models.families.qwen3_omni.thinker import Piece, Thinker
from tests.models.families.qwen3_omni.scene import cold, png

ROWS, ROW, TEXT, FRAMES = 3, 1, 8, 20


@pytest.fixture(scope="module")
def omni() -> Omni:
    torch.set_num_threads(1)
    made = cold(tiny.random())
    # transformers looks for it where the talker's configuration has none, once sound and an image come together.
    made.net.talker.config.audio_config = made.net.thinker.config.audio_config
    return made


def whole(omni: Omni, prompt: Prompt, media: list[Medium]) -> tuple[list[int], Tensor]:
    """Text tokens and sound, by `generate`."""
    ids = torch.tensor([prompt.ids])
    given: dict[str, Any] = {}
    pictures = [medium for medium in media if medium.kind == "image"]
    sounds = [medium.tensor for medium in media if medium.kind == "audio"]
    if pictures:
        given["pixel_values"] = torch.cat([medium.tensor for medium in pictures])
        given["image_grid_thw"] = torch.tensor([(1, *(medium.grid or (0, 0))) for medium in pictures])
    if sounds:
        given["input_features"] = torch.stack(sounds)
        given["feature_attention_mask"] = torch.ones(len(sounds), sounds[0].shape[1], dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sequence, wave = omni.net.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            speaker="ember",
            thinker_max_new_tokens=TEXT + 1,
            thinker_eos_token_id=omni.tokens.im_end,
            thinker_suppress_tokens=list(omni.rules.suppressed),
            thinker_do_sample=False,
            talker_do_sample=False,
            talker_max_new_tokens=FRAMES + 1,
            **given,
        )
    said = sequence[0, len(prompt) :].tolist()
    # A text that was cut off at its longest is spoken without its last token.
    return said[:-1], wave[0, 0]


def streamed(omni: Omni, prompt: Prompt, piece: int, chunk: int) -> tuple[list[int], list[Tensor], Tensor]:
    """Text tokens, codes and sound, stage by stage; the prompt in pieces, the sound in chunks of frames."""
    thinker, talker, decoder = Thinker(omni, ROWS, piece), Talker(omni, ROWS), Code2Wav(omni)
    for begin in range(0, len(prompt), piece):
        logits = thinker.read([Piece(ROW, prompt, begin, min(begin + piece, len(prompt)))])
    tokens = [int(logits[0].argmax())]
    while len(tokens) < TEXT and tokens[-1] != omni.tokens.im_end:
        last = torch.zeros(ROWS, dtype=torch.long)
        last[ROW] = tokens[-1]
        tokens.append(int(thinker.next_tokens(last, [ROW])[ROW].argmax()))
    spoken = [token for token in tokens if token != omni.tokens.im_end]
    heard = thinker.heard(ROW, prompt)
    read = talker.hear(heard, heard.hidden)
    talker.begin([Opening(ROW, read, heard.positions, omni.voices["ember"], spoken[0])])
    texts = [*talker.embed(spoken[1:]), talker.end_of_text] if spoken[1:] else [talker.end_of_text]
    track, frames, waves = Track(), [], []
    zeros = torch.zeros(ROWS, dtype=torch.long)
    for number in range(FRAMES):
        given = talker.no_text.expand(ROWS, -1).clone()
        given[ROW] = texts[number] if number < len(texts) else talker.no_text
        frame = talker.frame([ROW], given, zeros, zeros + number)
        if bool(frame.ended[ROW]):
            break
        frames.append(frame.codes[ROW])
        track.push(frame.codes[ROW])
        if track.waiting == chunk:
            waves += decoder.decode([Window(track, chunk)])
    if track.waiting:
        waves += decoder.decode([Window(track, track.waiting)])
    return spoken, frames, torch.cat(waves)


@torch.inference_mode()
@pytest.mark.parametrize(("piece", "chunk"), [(128, 1), (13, 3)])
def test_text_and_sound_in_pieces_are_those_of_generate(omni: Omni, piece: int, chunk: int) -> None:
    history = [Turn("user", ("hello there",)), Turn("assistant", ("hi",)), Turn("user", ("what now",))]
    prompt = build(omni, "be brief", history, 500)
    assert prompt is not None
    text, wave = whole(omni, prompt, [])
    mine, _, sound = streamed(omni, prompt, piece, chunk)
    assert mine == text
    assert sound.shape == wave.shape
    torch.testing.assert_close(sound, wave, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_an_image_and_sound_in_one_turn_are_understood_as_by_generate(omni: Omni) -> None:
    encoders = Encoders(omni)
    picture = image("picture", png(130, 70), encoders.patches)
    speech = audio("speech", np.random.default_rng(0).normal(0, 0.1, 32_333).astype(np.float32))
    (seen,), (heard,) = encoders.encode("t", [picture]), encoders.encode("t", [speech])
    turns = [Turn("user", (seen, "what is this? ", heard)), Turn("assistant", ("hm",)), Turn("user", ("and", heard))]
    prompt = build(omni, "", turns, 500)
    assert prompt is not None
    assert (seen.grid, len(seen.embeds)) == ((2, 4), 8)
    text, wave = whole(omni, prompt, [picture, speech, speech])
    mine, _, sound = streamed(omni, prompt, 37, 4)
    assert mine == text
    torch.testing.assert_close(sound, wave, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_codes_are_those_of_a_step_wise_reference_without_batch_or_rows_of_its_own(omni: Omni) -> None:
    """The reference keeps transformers' growing caches, one sequence, and reads each frame's codes from scratch."""
    prompt = build(omni, "", [Turn("user", ("hello",))], 500)
    assert prompt is not None
    spoken, frames, _ = streamed(omni, prompt, 128, 4)
    net, talker = omni.net, omni.net.talker
    config, control = talker.config, omni.tokens
    embed = net.thinker.get_input_embeddings()

    def text(*tokens: int) -> Tensor:
        made: Tensor = talker.text_projection(embed(torch.tensor([tokens])))
        return made

    user_part = prompt.ids[: prompt.spoken.index(False)]
    named = ("nothink_id", "think_bos_id", "think_eos_id")
    steering = [getattr(config, f"codec_{name}") for name in named]
    steering += [omni.voices["ember"], config.codec_pad_id, config.codec_bos_id]
    head = text(control.im_start, control.assistant, control.newline)
    first = torch.cat([text(*[control.tts_pad] * 4), text(control.tts_bos), text(spoken[0])], 1)
    inputs = torch.cat([text(*user_part), head, first + talker.get_input_embeddings()(torch.tensor([steering]))], 1)
    follow = [*(text(token) for token in spoken[1:]), text(control.tts_eos)]
    barred = torch.zeros(config.text_config.vocab_size, dtype=torch.bool)
    barred[-1024:] = True
    barred[config.codec_eos_token_id] = False
    used: set[int] = set()
    tables = talker.code_predictor.get_input_embeddings()
    for number, frame in enumerate(frames):
        hidden = talker.model(inputs_embeds=inputs).last_hidden_state[:, -1:]
        logits = talker.codec_head(hidden)[0, 0].masked_fill(barred, -torch.inf)
        for code in used:
            logits[code] = logits[code] / 1.05 if logits[code] > 0 else logits[code] * 1.05
        codes = [int(logits.argmax())]
        used.add(codes[0])
        sequence = torch.cat([hidden, talker.get_input_embeddings()(torch.tensor([[codes[0]]]))], 1)
        total = sequence[:, 1:]
        for book in range(config.num_code_groups - 1):
            state = talker.code_predictor.model(inputs_embeds=sequence).last_hidden_state[:, -1]
            codes.append(int(talker.code_predictor.lm_head[book](state).argmax()))
            entry = tables[book](torch.tensor([[codes[-1]]]))
            sequence, total = torch.cat([sequence, entry], 1), total + entry
        assert codes == frame.tolist(), f"frame {number}"
        inputs = torch.cat([inputs, total + (follow[number] if number < len(follow) else text(control.tts_pad))], 1)


@torch.inference_mode()
def test_windows_of_any_length_make_each_sample_once_and_no_clicks_at_their_borders(omni: Omni) -> None:
    codes = torch.randint(0, tiny.ENTRIES, (30, tiny.CODEBOOKS), generator=torch.Generator().manual_seed(1))
    net = omni.net.code2wav
    whole_wave = net(codes.T[None])[0, 0]
    for left, near in ((None, True), (omni.shape.left, True), (1, False)):
        decoder = Code2Wav(replace(omni, shape=replace(omni.shape, left=left)))
        for chunk in (1, 7):
            track, waves = Track(), []
            for begin in range(0, 30, chunk):
                for frame in codes[begin : begin + chunk]:
                    track.push(frame)
                waves += decoder.decode([Window(track, track.waiting)])
            sound = torch.cat(waves)
            assert sound.shape == whole_wave.shape
            assert (float((sound - whole_wave).abs().max()) < 1e-5) == near
            if not near:  # one frame is too little to hear on from
                continue
            # A border is where a window took over; the step over it is no larger than within the sound itself.
            borders = torch.tensor([sum(map(len, waves[: index + 1])) for index in range(len(waves) - 1)])
            steps = whole_wave.diff().abs()
            assert float((sound[borders] - sound[borders - 1]).abs().max()) <= float(steps.max()) + 1e-5


@torch.inference_mode()
def test_tracks_in_one_step_sound_as_alone(omni: Omni) -> None:
    decoder = Code2Wav(omni)
    codes = torch.randint(0, tiny.ENTRIES, (3, 20, tiny.CODEBOOKS), generator=torch.Generator().manual_seed(2))
    alone, together = [Track() for _ in codes], [Track() for _ in codes]
    for one, other, frames in zip(alone, together, codes, strict=True):
        for frame in frames:
            one.push(frame)
            other.push(frame)
    counts = (20, 20, 7)
    jointly = decoder.decode([Window(track, count) for track, count in zip(together, counts, strict=True)])
    for track, count, wave in zip(alone, counts, jointly, strict=True):
        torch.testing.assert_close(decoder.decode([Window(track, count)])[0], wave, atol=1e-6, rtol=0)


@pytest.mark.parametrize("frames", [1, 8, 99, 100, 101, 202, 399, 400, 1000])
@torch.inference_mode()
def test_sound_has_as_many_positions_as_the_encoder_makes(omni: Omni, frames: int) -> None:
    tower = omni.net.thinker.model.audio_tower
    made = tower(torch.zeros(128, frames), feature_lens=torch.tensor([frames])).last_hidden_state
    assert sound_positions(frames, tower.n_window) == len(made)
