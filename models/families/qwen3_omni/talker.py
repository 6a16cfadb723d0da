"""The talker with its code predictor, stepped: one frame of codes for all its rows at once.

A row begins with the user's turns and the first word of the answer, and is then given one more text token with each
frame: text and sound go on side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache

from ...occupancy import KeyValues
from ...slots.noise import TEXT_STREAM, keys
from .kv import RowCache
from .omni import Omni
from .sampling import draw
from .thinker import Heard, _head_dim

CONTROL_CODES = 1024
"""The last entries of the talker's vocabulary steer it; of them only the end of speech is ever drawn."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How `row` begins: the user's turns as the talker reads them, [n, d] and [3, n], and the first text token."""

    row: int
    heard: Tensor
    positions: Tensor
    voice: int
    first: int


@dataclass(frozen=True, slots=True)
class Frames:
    """One frame of all rows: `codes` int64 [rows, codebooks]; `ended` bool [rows], where speech is over instead."""

    codes: Tensor
    ended: Tensor


class Talker:
    """`rows` answers being spoken. State of a row lasts for one answer: keys and values, last hidden state, and which
    codes it has used."""

    def __init__(self, omni: Omni, rows: int) -> None:
        self._omni = omni
        self._net = omni.net.talker
        config = self._net.config
        text = config.text_config
        devices = [next(layer.parameters()).device for layer in self._net.model.layers]
        weights = self._net.codec_head.weight
        self._device = weights.device
        self._cache = RowCache(
            rows,
            omni.shape.talker_cells,
            text.num_key_value_heads,
            _head_dim(text),
            spare=1,
            dtype=weights.dtype,
            devices=devices,
        )
        self._lengths = torch.zeros(rows, dtype=torch.long)
        self._following = torch.zeros(rows, dtype=torch.long)
        self._hidden = torch.zeros(rows, text.hidden_size, dtype=weights.dtype, device=self._device)
        self._used = torch.zeros(rows, text.vocab_size, dtype=torch.bool, device=self._device)
        self._barred = torch.zeros(text.vocab_size, dtype=torch.bool, device=self._device)
        self._barred[text.vocab_size - CONTROL_CODES :] = True
        self._barred[config.codec_eos_token_id] = False
        self._end = config.codec_eos_token_id
        self._codebooks = config.num_code_groups
        tokens = omni.tokens
        self._bos, self._eos, self._pad = self.embed([tokens.tts_bos, tokens.tts_eos, tokens.tts_pad]).unbind(0)

    @property
    def bytes(self) -> int:
        return self._cache.bytes

    @property
    def kv(self) -> KeyValues:
        """How full the rows are."""
        return KeyValues(self._cache.bytes, self._cache.rows * self._cache.cells, int(self._lengths.sum()))

    @property
    def end_of_text(self) -> Tensor:
        """What a row is given once after its last text token, [d]; then `no_text`."""
        return self._eos

    @property
    def no_text(self) -> Tensor:
        return self._pad

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """Text tokens as the talker reads them, [n, d]."""
        ids = torch.tensor(list(tokens), dtype=torch.long, device=self._omni.device)
        embeds: Tensor = self._net.text_projection(self._omni.net.thinker.get_input_embeddings()(ids))
        return embeds.to(self._device)

    def hear(self, heard: Heard, hidden: Tensor) -> Tensor:
        """The user's turns as the talker reads them, [n, d]; `hidden` [m, thinker d] is what it was given of media."""
        embeds = self.embed(heard.ids.tolist())
        if len(hidden):
            understood = self._net.hidden_projection(hidden.to(self._device))
            embeds[heard.media.to(embeds.device)] = understood.to(embeds)
        return embeds

    @property
    def longest_opening(self) -> int:
        """Most positions of the user's turns that an answer may begin with; the rest is left for what it says."""
        return self._cache.cells // 2

    def has_room(self, row: int) -> bool:
        """Whether another frame fits."""
        return int(self._lengths[row]) < self._cache.cells

    def stand_at(self, length: int) -> None:
        """Let every row hold `length` positions of nothing, to measure what a step costs then."""
        self._lengths.fill_(length)
        self._following.fill_(length)

    def forget(self, row: int) -> None:
        """Leave nothing of the row's answer."""
        self._lengths[row] = self._following[row] = 0
        self._hidden[row].zero_()
        self._used[row].zero_()
        self._cache.zero(row)

    def begin(self, openings: Sequence[Opening]) -> None:
        """Let rows begin together."""
        started = [self._opening(opening) for opening in openings]
        width = max(len(embeds) for embeds, _ in started)
        embeds = self._hidden.new_zeros(len(started), width, self._hidden.shape[1])
        positions = torch.zeros(3, len(started), width, dtype=torch.long)
        for index, (own, places) in enumerate(started):
            embeds[index, : len(own)] = own
            positions[:, index, : len(own)] = places
        rows = torch.tensor([opening.row for opening in openings])
        out = self._net.model(
            inputs_embeds=embeds,
            attention_mask=self._cache.place(torch.zeros(len(started), dtype=torch.long), width, rows),
            position_ids=positions.to(self._device),
            cache=self._cache,
            use_cache=True,
        )
        for index, (opening, (own, places)) in enumerate(zip(openings, started, strict=True)):
            row = opening.row
            self._lengths[row] = len(own)
            self._following[row] = int(places.max()) + 1
            self._hidden[row] = out.last_hidden_state[index, len(own) - 1]
            self._used[row].zero_()

    def _opening(self, opening: Opening) -> tuple[Tensor, Tensor]:
        config, tokens = self._net.config, self._omni.tokens
        head = self.embed([tokens.im_start, tokens.assistant, tokens.newline])
        first = self.embed([opening.first])
        text = torch.cat([head, self._pad.expand(4, -1), self._bos[None], first])
        steering = (
            config.codec_nothink_id,
            config.codec_think_bos_id,
            config.codec_think_eos_id,
            opening.voice,
            config.codec_pad_id,
            config.codec_bos_id,
        )
        text[3:] += self._net.get_input_embeddings()(torch.tensor(steering, device=self._device))
        heard = opening.heard.to(text)
        following = int(opening.positions.max()) + 1 if opening.positions.numel() else 0
        own = torch.arange(following, following + len(text)).expand(3, -1)
        return torch.cat([heard, text]), torch.cat([opening.positions, own], 1)

    def frame(self, active: Sequence[int], texts: Tensor, seeds: Tensor, numbers: Tensor) -> Frames:
        """One frame of the rows `active`, each given its text of `texts` [rows, d]; others come along and stay.

        `seeds` and frame `numbers`: int64 [rows], what the noise hangs on.
        """
        rules = self._omni.rules
        noise = keys(seeds, numbers, TEXT_STREAM + 1 + self._codebooks).to(self._device)[TEXT_STREAM + 1 :]
        logits = self._net.codec_head(self._hidden).float().masked_fill(self._barred, -torch.inf)
        if rules.code_repetition != 1:
            # As in CTRL (arXiv 1909.05858): what was said before becomes less likely, whatever its sign.
            pushed = torch.where(logits > 0, logits / rules.code_repetition, logits * rules.code_repetition)
            logits = torch.where(self._used, pushed, logits)
        first = draw(logits, noise[0], rules.code_temperature, rules.code_top_k)
        codes, embeds = self._residuals(first, noise)
        out = self._net.model(
            inputs_embeds=(embeds + texts.to(embeds))[:, None],
            attention_mask=self._cache.place(self._lengths.clamp(max=self._cache.cells), 1),
            position_ids=self._following[None, :, None].expand(3, -1, -1).to(self._device),
            cache=self._cache,
            use_cache=True,
        )
        rows = torch.tensor(active)
        self._hidden[rows.to(self._device)] = out.last_hidden_state[:, -1][rows.to(self._device)]
        self._used[rows.to(self._device), first[rows.to(self._device)]] = True
        self._lengths[rows] += 1
        self._following[rows] += 1
        return Frames(codes.cpu(), (first == self._end).cpu())

    def _residuals(self, first: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The remaining codes of a frame, one after the other; returns codes [rows, codebooks] and their sum as the
        talker reads it, [rows, d]."""
        rules, predictor = self._omni.rules, self._net.code_predictor
        cache = DynamicCache()
        embeds = self._net.get_input_embeddings()(first)
        total, codes = embeds, [first]
        out = predictor(
            inputs_embeds=torch.stack([self._hidden, embeds], 1).to(predictor.lm_head[0].weight.device),
            cache=cache,
            use_cache=True,
        )
        tables = predictor.get_input_embeddings()
        for number in range(1, self._codebooks):
            logits = out.logits[:, -1]
            code = draw(
                logits,
                noise[number].to(logits.device),
                rules.residual_temperature,
                rules.residual_top_k,
                rules.residual_top_p,
            )
            codes.append(code.to(first.device))
            total = total + tables[number - 1](code).to(total.device)
            if number + 1 < self._codebooks:
                out = predictor(input_ids=code[:, None], cache=cache, use_cache=True, generation_steps=number)
        return torch.stack(codes, 1), total

    def fit(self, row: int) -> bool:
        """Whether all numbers of the row's state are finite."""
        return bool(self._hidden[row].isfinite().all())
