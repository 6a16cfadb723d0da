"""Moshi stepped frame by frame for a batch of slots: codec, delays, both transformers, sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from codec.columns import by_columns
from codec.mimi.streams import Streams
from codec.recording import record
from models.slots.codec import SlotCodec
from models.slots.model import StepInput, StepOutput
from models.slots.noise import TEXT_STREAM, keys, sample

from .errors import CodecUnfit
from .language import MoshiLM


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn; the defaults are those of the published model. Temperature 0: the likeliest."""

    temperature: float = 0.8
    text_temperature: float = 0.7
    top_k: int = 250
    text_top_k: int = 25


class MoshiSlots:
    """`SlotModel` of the Moshi family.

    A frame t of the user goes in at position t (its delayed codebooks later, each by its delay) and gives the tokens of
    position t + 1; the agent's frame t is complete when its most delayed codebook stands. All positions of a slot lie
    in a ring of tokens, long enough for the delays and for a rewind.

    Everything in a step happens in place on tensors of fixed shape, so that a step can be captured as a CUDA graph.
    """

    def __init__(
        self,
        lm: MoshiLM,
        codec: SlotCodec,
        batch: int,
        *,
        margin: int = 0,
        sampling: Sampling | None = None,
    ) -> None:
        config = lm.config
        identity = codec.identity
        if identity.codebook_size != config.codebook_size:
            raise CodecUnfit("codec", "codebook_size", identity.codebook_size, config.codebook_size)
        if identity.codebooks != max(config.agent, config.user):
            raise CodecUnfit("codec", "codebooks", identity.codebooks, max(config.agent, config.user))
        self.lm = lm
        self.codec = codec
        self.batch = batch
        self.margin = margin
        self.hop = identity.hop
        self.sample_rate = identity.sample_rate
        self.codebooks = identity.codebooks
        self._sampling = sampling or Sampling()
        self.streams = Streams(lm.transformer, batch, margin=margin)
        device = self.streams.layout.device
        if device.type == "cpu":
            by_columns(layer for layer in lm.modules() if isinstance(layer, nn.Linear))
        self._initial = lm.initial(device)
        self._delays = torch.tensor(config.delays, device=device)
        self._cells = config.longest_delay + 2 + margin
        self._tokens = self._initial[None, :, None].expand(batch, -1, self._cells).contiguous()
        self._seed = torch.zeros(batch, dtype=torch.int64, device=device)
        quiet = [torch.tensor([config.text_pad], device=device), codec.silence[: config.agent].to(device)]
        self._quiet = torch.cat(quiet)
        self._text = torch.zeros(batch, dtype=torch.int64, device=device)
        self._prompted = torch.zeros(batch, dtype=torch.int64, device=device)
        """Frames of each slot from its beginning on that were given and not drawn."""
        self._recorded: Callable[..., tuple[Tensor, ...]] | None = None

    @property
    def device(self) -> torch.device:
        return self._seed.device

    @torch.inference_mode()
    def reset(self, mask: Tensor, seed: Tensor) -> None:
        mask = mask.to(self.device)
        self.streams.reset(mask)
        self.codec.reset(mask)
        self._tokens.copy_(torch.where(mask[:, None, None], self._initial[None, :, None], self._tokens))
        self._seed.copy_(torch.where(mask, seed.to(self.device), self._seed))
        self._prompted.masked_fill_(mask, 0)

    @torch.inference_mode()
    def stand_at(self, frames: int) -> None:
        """Let all slots stand as after so many frames, with windows full of nothing: for measurements."""
        self.streams.position.fill_(frames)
        self._tokens.zero_()

    @torch.inference_mode()
    def rewind(self, back: Tensor) -> None:
        back = back.to(self.device)
        self.streams.rewind(back)
        self.codec.rewind(back)

    @torch.inference_mode()
    def step(self, given: StepInput) -> StepOutput:
        device = self.device
        run, hears, hush = given.run.to(device), given.hears.to(device), given.hush.to(device)
        codes, heard_well = self.codec.encode(given.pcm.to(device), hears)
        heard = torch.where(hears[:, None], codes, given.codes.to(device))
        forced = given.forced.to(device) & run
        advance = self._recorded or self.advance
        text, said, begun, thought_well = advance(
            heard, run, hush, (forced, given.text.to(device), given.said.to(device))
        )
        # What is given nobody hears.
        begun = begun & ~forced
        pcm, spoke_well = self.codec.decode(torch.where(begun[:, None], said, self.codec.silence), run & begun)
        finite = thought_well & (heard_well | ~hears) & (spoke_well | ~begun)
        return StepOutput(
            pcm * begun[:, None],
            torch.where(begun, text, -1),
            heard,
            torch.where(begun[:, None], said, -1),
            finite,
        )

    def advance(
        self, heard: Tensor, run: Tensor, hush: Tensor, given: tuple[Tensor, Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The language model's part of a step, on codes.

        Takes the user's codes int64 [batch, codebooks], and masks bool [batch]. `given`: in which slots the agent's
        frame is given, bool [batch], its text int64 [batch] and codes int64 [batch, codebooks].

        Returns the text int64 [batch] and the agent's codes int64 [batch, codebooks] of the frame that is complete now,
        in which slots there is one, and in which all numbers were finite.
        """
        config = self.lm.config
        agent, position = config.agent, self.streams.position
        self.streams.begin(run)
        # The user's frame, each codebook at its place.
        self._write(slice(1 + agent, None), position, heard[:, : config.user], run, delayed=True)
        # An agent that is made silent also did not begin what is not delayed of this frame a step ago.
        at_once = self._delays[: 1 + agent] == 0
        current = self._read(slice(0, 1 + agent), position, delayed=False)
        self._write(
            slice(0, 1 + agent), position, torch.where(at_once, self._quiet, current), run & hush, delayed=False
        )
        if given is not None:
            forced, text, codes = given
            frame = torch.cat([text[:, None], codes[:, :agent]], dim=1)
            self._write(slice(0, 1 + agent), position, frame, forced, delayed=True)
            self._prompted.copy_(torch.where(forced, position + 1, self._prompted))
        # Of the next position, what belongs to a frame that was given stands there already.
        kept = position[:, None] + 1 - self._delays[: 1 + agent] < self._prompted[:, None]
        there = self._read(slice(0, 1 + agent), position + 1, delayed=False)
        tokens = self._read(slice(None), position, delayed=False)
        tokens = torch.where(position[:, None] <= self._delays, self._initial, tokens)

        hidden, logits = self.lm(tokens[..., None], self.streams)
        hidden, logits = hidden[:, 0], logits[:, 0]
        noise = keys(self._seed, position, 1 + agent).unbind(0)
        text = self._draw(logits, TEXT_STREAM, noise)
        text = torch.where(hush, self._quiet[0], text)
        text = torch.where(kept[:, 0], there[:, 0], text)

        given_codes = list(zip(kept.unbind(1), there.unbind(1), strict=True))[1:]

        def draw(logits: Tensor, codebook: int) -> Tensor:
            return torch.where(*given_codes[codebook], self._draw(logits, codebook + 1, noise))

        said = self.lm.depth(hidden, text, draw)
        said = torch.where(hush[:, None] & ~kept[:, 1:], self._quiet[1:], said)
        self._write(slice(0, 1 + agent), position + 1, torch.cat([text[:, None], said], dim=1), run, delayed=False)

        complete = position + 1 - config.longest_delay
        out = self._read(slice(0, 1 + agent), complete, delayed=True)
        begun = run & (complete > 0)
        self.streams.end()
        return out[:, 0], out[:, 1:], begun, torch.isfinite(hidden).all(-1) & torch.isfinite(logits).all(-1)

    def record(self) -> None:
        """Record what `advance` computes, so that steps do it without the interpreter: on a CPU two thirds of the time,
        and its thousand operations do not wait for other threads' turns in Python. The results are the same, bit for
        bit. The record holds a copy of all weights."""
        codes = torch.zeros(self.batch, self.codebooks, dtype=torch.int64, device=self.device)
        nobody = torch.zeros(self.batch, dtype=torch.bool, device=self.device)

        def function(
            heard: Tensor, run: Tensor, hush: Tensor, forced: Tensor, text: Tensor, codes: Tensor, *kept: Tensor
        ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            own = self._tokens, self._seed, self._prompted
            self._tokens, self._seed, self._prompted, *streams = kept
            try:
                with self.streams.standing_in(streams):
                    return self.advance(heard, run, hush, (forced, text, codes))
            finally:
                self._tokens, self._seed, self._prompted = own

        given = (codes, nobody, nobody.clone(), nobody.clone(), codes[:, 0].clone(), codes.clone())
        kept = (self._tokens, self._seed, self._prompted, *self.streams.tensors)
        recorded = record(function, *given, *kept)
        self._recorded = lambda heard, run, hush, given: recorded(heard, run, hush, *given, *kept)

    def _draw(self, logits: Tensor, stream: int, noise: Sequence[Tensor]) -> Tensor:
        s = self._sampling
        if stream == TEXT_STREAM:
            return sample(logits, noise[stream], temperature=s.text_temperature, top_k=s.text_top_k)
        return sample(logits, noise[stream], temperature=s.temperature, top_k=s.top_k)

    def _places(self, rows: slice, position: Tensor, delayed: bool) -> Tensor:
        """Ring cells int64 [batch, rows, 1] of `position` int64 [batch], plus each stream's delay where `delayed`."""
        delays = self._delays[rows] * int(delayed)
        return ((position[:, None] + delays) % self._cells)[..., None]

    def _read(self, rows: slice, position: Tensor, *, delayed: bool) -> Tensor:
        return self._tokens[:, rows].gather(2, self._places(rows, position, delayed))[..., 0]

    def _write(self, rows: slice, position: Tensor, tokens: Tensor, mask: Tensor, *, delayed: bool) -> None:
        places = self._places(rows, position, delayed)
        ring = self._tokens[:, rows]
        ring.scatter_(2, places, torch.where(mask[:, None, None], tokens[..., None], ring.gather(2, places)))
