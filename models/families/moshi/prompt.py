"""What a model of PersonaPlex's kind is told before a conversation: its voice, and who it is.

The model is stepped through frames in which both speakers and the inner text are given: the agent speaks in the voice
that it shall have, falls silent, "thinks" the instructions while it says nothing, and is silent again. The user's side
holds a tone meanwhile, which marks that nobody is there (NVIDIA, PersonaPlex, arXiv:2602.06053, and its repository:
`step_system_prompts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

from codec.mimi.model import Mimi
from codec.pcm import to_samples
from codec.resample import Resampler
from models.slots.engine import Forced, PromptRefused
from sessions.core.config import SessionConfig

from .config import MoshiConfig
from .errors import VoiceUnfit

Encode = Callable[[str], tuple[int, ...]]
"""Text to tokens of the inner text."""

VOICES = "voices"
"""Folder of a checkpoint with a recording for each voice, `NAME.wav` or `NAME.flac`."""
DEFAULT = "default"
"""Voice of a session that names none: no recording is given, and the model speaks as it happens to."""
PAUSE = 0.5
"""Seconds of silence after the voice, and after the text."""
TONE = 440.0
"""Hz of what stands on the user's side."""
LONGEST_VOICE = 30.0
"""Seconds of a recording at most: each frame of it is a step before the session can speak."""


def framed(instructions: str) -> str:
    """Instructions as the model was taught to read them; empty for none."""
    text = instructions.strip()
    return f"<system> {text} <system>" if text else ""


def speechless(text: str) -> tuple[int, ...]:
    """In place of a tokenizer that is not there. Raises PromptRefused."""
    raise PromptRefused(
        "instructions_unsupported",
        "this server cannot read instructions to the model: its tokenizer is missing; put it beside the checkpoint",
    )


@dataclass(frozen=True, slots=True)
class Prompts:
    """Makes the prompt of each session. `silence` and `tone` int [codebooks]; `voices` int [frames, codebooks] each."""

    encode: Encode
    pad: int
    silence: tuple[int, ...]
    tone: tuple[int, ...]
    pause: int
    longest: int
    """Frames of a prompt at most: beyond that it would push itself out of the model's window."""
    voices: Mapping[str, tuple[tuple[int, ...], ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """Voices that a session may ask for."""
        return (DEFAULT, *sorted(self.voices)) if self.voices else ()

    def __call__(self, config: SessionConfig) -> tuple[Forced, ...]:
        """Frames for a session configured so; none where it says neither who the agent is nor how it sounds.

        Raises PromptRefused for instructions that are too long.
        """
        voice = self.voices.get(config.voice, ())
        tokens = self.encode(framed(config.instructions)) if config.instructions.strip() else ()
        if not voice and not tokens:
            return ()
        pause = (self._frame(self.pad, self.silence),) * self.pause
        spoken = (*(self._frame(self.pad, codes) for codes in voice), *pause) if voice else pause
        thought = (*(self._frame(token, self.silence) for token in tokens), *pause) if tokens else ()
        if len(spoken) + len(thought) > self.longest:
            room = self.longest - len(spoken) - self.pause
            raise PromptRefused(
                "instructions_too_long",
                f"the instructions are {len(tokens)} tokens long; with this voice the model reads at most {room}. "
                "Shorten them",
            )
        return (*spoken, *thought)

    def _frame(self, text: int, said: tuple[int, ...]) -> Forced:
        return Forced(text, said, self.tone)


def prompts_of(config: MoshiConfig, mimi: Mimi, encode: Encode, voices: Mapping[str, NDArray[np.float32]]) -> Prompts:
    """For a model with this codec; `voices` float32 [samples] in -1..1 at the codec's rate."""
    rate, hop = mimi.config.sample_rate, mimi.config.hop
    seconds = np.arange(2 * rate) / rate
    tone = (0.5 * np.sin(2 * np.pi * TONE * seconds)).astype(np.float32)
    return Prompts(
        encode,
        config.text_pad,
        _codes(mimi, np.zeros(2 * rate, np.float32))[-1],
        _codes(mimi, tone)[-1],
        round(PAUSE * rate / hop),
        config.temporal.context // 3,
        {name: _codes(mimi, samples) for name, samples in voices.items()},
    )


def read_voices(folder: Path, rate: int) -> dict[str, NDArray[np.float32]]:
    """The recordings in a checkpoint's folder of voices, at `rate` Hz; empty where there is none. Raises VoiceUnfit."""
    paths = sorted(path for path in (folder / VOICES).glob("*") if path.suffix.lower() in (".wav", ".flac"))
    return {path.stem: _read(path, rate) for path in paths}


def _read(path: Path, rate: int) -> NDArray[np.float32]:
    try:
        samples, found = soundfile.read(path, dtype="int16", always_2d=True)
    except (soundfile.LibsndfileError, OSError) as error:
        raise VoiceUnfit(str(path), f"cannot be read as audio ({error}); give a WAV or FLAC file") from error
    if not 1.0 <= len(samples) / found <= LONGEST_VOICE:
        raise VoiceUnfit(
            str(path), f"is {len(samples) / found:.1f} s long; a voice is shown by 1 to {LONGEST_VOICE:.0f} s of speech"
        )
    lane = Resampler(found, rate)
    mono = to_samples(samples[:, 0].astype("<i2").tobytes())
    return np.concatenate([lane.process(mono), lane.flush()]).astype(np.float32) / np.float32(32768)


@torch.no_grad()
def _codes(mimi: Mimi, samples: NDArray[np.float32]) -> tuple[tuple[int, ...], ...]:
    """Codes of whole frames, [frames][codebooks]."""
    whole = len(samples) // mimi.config.hop * mimi.config.hop
    pcm = torch.from_numpy(samples[:whole]).to(mimi.quantizer.semantic.codebooks.device)
    return tuple(tuple(frame) for frame in mimi.encode(pcm[None])[0].T.tolist())


__all__ = ["DEFAULT", "VOICES", "Encode", "Prompts", "framed", "prompts_of", "read_voices", "speechless"]
