"""A loaded Qwen3-Omni: transformers' modules with the tokens and rules that they are stepped by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from transformers import Qwen3OmniMoeForConditionalGeneration

from .words import Words

RATE = 24_000
"""Hz of code2wav's PCM (Qwen3-Omni model card; no configuration holds it)."""


@dataclass(frozen=True, slots=True)
class ControlTokens:
    """Ids that frame a prompt (ChatML) and steer the talker, as the checkpoint's configuration numbers them."""

    im_start: int
    im_end: int
    system: int
    user: int
    assistant: int
    newline: int
    audio_start: int
    audio_end: int
    audio: int
    vision_start: int
    vision_end: int
    image: int
    tts_bos: int
    tts_eos: int
    tts_pad: int

    def role(self, name: str) -> int:
        return {"system": self.system, "assistant": self.assistant}.get(name, self.user)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How tokens are drawn. The defaults are those of transformers' `generate` for this model.

    `suppressed`: text tokens that are never said. `text_top_k` 0: among all. `longest_text`: tokens of one response
    where the client sets no limit. `longest_speech`: frames of one response. A temperature of 0 takes the likeliest.
    """

    suppressed: tuple[int, ...] = ()
    text_top_k: int = 0
    code_temperature: float = 0.9
    code_top_k: int = 50
    code_repetition: float = 1.05
    residual_temperature: float = 1.0
    residual_top_k: int = 50
    residual_top_p: float = 0.8
    longest_text: int = 1024
    longest_speech: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the state of one sequence may grow to. `cells`: positions of the thinker. `talker_cells`: of the talker.

    `left`: frames that code2wav hears again before each new one; None: all of the response.
    """

    cells: int = 8192
    talker_cells: int = 8192
    left: int | None = 25
    image_positions: int = 1024
    """Positions that one image may take; a larger one is scaled down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Omni:
    """Everything that the stages need. `version` changes with any weight of the encoders."""

    net: Qwen3OmniMoeForConditionalGeneration
    words: Words
    tokens: ControlTokens
    version: str
    rules: Rules = field(default_factory=Rules)
    shape: Shape = field(default_factory=Shape)

    @property
    def voices(self) -> Mapping[str, int]:
        """Names of the speakers and their codec tokens."""
        speakers: Mapping[str, int] = self.net.talker.config.speaker_id or {}
        return {name.lower(): token for name, token in speakers.items()}

    @property
    def device(self) -> torch.device:
        weight: torch.Tensor = self.net.thinker.lm_head.weight
        return weight.device
