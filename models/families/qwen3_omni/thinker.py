"""The thinker, stepped: many sequences in rows, read in pieces and continued together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...caches import CacheMetrics
from ...occupancy import KeyValues
from ...slots.noise import TEXT_STREAM, keys
from .kv import RowCache
from .omni import Omni
from .prompt import Cell, Features, Prompt, common
from .sampling import draw


@dataclass(slots=True)
class _Row:
    """What one row's keys and values stand for. `next`: rotary position of what comes next."""

    cells: list[Cell] = field(default_factory=list)
    next: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Read [begin, end) of `prompt` into `row`."""

    row: int
    prompt: Prompt
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Heard:
    """The user's turns as the talker reads them: text by its tokens, media as the thinker understood them.

    `ids` int64 [n]; `media` bool [n], which of them stand for a medium; `hidden` [m, d], the accepted layer there;
    `positions` int64 [3, n], rotary, as if nothing else had ever been there.
    """

    ids: Tensor
    media: Tensor
    hidden: Tensor
    positions: Tensor


class Thinker:
    """`rows` sequences. Keys and values stay in a row from answer to answer, as long as what they stand for is still
    how the history begins; `rewind` cuts them to that."""

    def __init__(self, omni: Omni, rows: int, widest: int) -> None:
        """`widest`: most positions of one prompt that are read in one step."""
        self._omni = omni
        self._net = omni.net.thinker
        text = self._net.config.text_config
        # Layers may lie on several devices; each layer's keys and values lie with it.
        devices = [next(layer.parameters()).device for layer in self._net.model.language_model.layers]
        heads, width = text.num_key_value_heads, _head_dim(text)
        weights = self._net.lm_head.weight
        self._cache = RowCache(rows, omni.shape.cells, heads, width, spare=widest, dtype=weights.dtype, devices=devices)
        self._rows = [_Row() for _ in range(rows)]
        self._kept = self._missed = 0
        self._accept = omni.net.talker.config.accept_hidden_layer
        self._hidden = torch.zeros(
            rows, omni.shape.cells + widest, text.hidden_size, dtype=weights.dtype, device=weights.device
        )
        self._suppressed = torch.zeros(text.vocab_size, dtype=torch.bool, device=weights.device)
        self._suppressed[list(omni.rules.suppressed)] = True

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values of all rows."""
        return self._cache.bytes

    @property
    def kv(self) -> KeyValues:
        """How full the rows are."""
        held = sum(len(row.cells) for row in self._rows)
        return KeyValues(self._cache.bytes, self._cache.rows * self._cache.cells, held)

    @property
    def prefixes(self) -> CacheMetrics:
        """Positions of prompts: those that a row held from the answer before (hits), and those it had to read."""
        return CacheMetrics(self._kept, self._missed, entries=len(self._rows), bytes=self._cache.bytes)

    def length(self, row: int) -> int:
        """Positions of `row` that are held."""
        return len(self._rows[row].cells)

    def rewind(self, row: int, prompt: Prompt) -> int:
        """Keep of `row` what `prompt` begins with; returns how much that is."""
        state = self._rows[row]
        kept = common(state.cells, prompt)
        self._kept, self._missed = self._kept + kept, self._missed + len(prompt) - kept
        del state.cells[kept:]
        state.next = int(prompt.positions[:, kept].max()) if kept else 0
        return kept

    def stand_at(self, length: int) -> None:
        """Let every row hold `length` positions of nothing, to measure what a step costs then."""
        for state in self._rows:
            state.cells, state.next = [0] * length, length

    def forget(self, row: int) -> None:
        """Leave nothing of the row's sequence."""
        self._rows[row] = _Row()
        self._cache.zero(row)
        self._hidden[row].zero_()

    def read(self, pieces: Sequence[Piece]) -> Tensor:
        """Read pieces of several prompts at once. Returns what follows the end of each: logits, float [pieces, V]."""
        omni, net = self._omni, self._net
        device = omni.device
        width = max(piece.end - piece.begin for piece in pieces)
        ids = torch.full((len(pieces), width), omni.tokens.newline)
        positions = torch.zeros(3, len(pieces), width, dtype=torch.long)
        for index, piece in enumerate(pieces):
            count = piece.end - piece.begin
            ids[index, :count] = torch.tensor(piece.prompt.ids[piece.begin : piece.end])
            positions[:, index, :count] = piece.prompt.positions[:, piece.begin : piece.end]
        embeds = net.get_input_embeddings()(ids.to(device))
        seen, deep = self._lay_media(embeds, pieces)
        rows = torch.tensor([piece.row for piece in pieces])
        starts = torch.tensor([piece.begin for piece in pieces])
        out = net.model.language_model(
            inputs_embeds=embeds,
            attention_mask=self._cache.place(starts, width, rows),
            position_ids=positions.to(device),
            cache=self._cache,
            use_cache=True,
            output_hidden_states=True,
            visual_pos_masks=seen,
            deepstack_visual_embeds=deep,
        )
        accepted = out.hidden_states[self._accept].to(self._hidden.device)
        for index, piece in enumerate(pieces):
            count = piece.end - piece.begin
            self._hidden[piece.row, piece.begin : piece.end] = accepted[index, :count]
            state = self._rows[piece.row]
            state.cells[piece.begin :] = piece.prompt.cells[piece.begin : piece.end]
            state.next = piece.prompt.next
        ends = torch.tensor([piece.end - piece.begin - 1 for piece in pieces], device=out.last_hidden_state.device)
        last = out.last_hidden_state[torch.arange(len(pieces), device=ends.device), ends]
        return self._logits(last)

    def _lay_media(self, embeds: Tensor, pieces: Sequence[Piece]) -> tuple[Tensor | None, list[Tensor] | None]:
        """Put features into `embeds` [R, W, d] in place. Returns where images lie, bool [R, W], and for each deep layer
        what goes in there, [images' positions, d]."""
        seen = torch.zeros(embeds.shape[:2], dtype=torch.bool, device=embeds.device)
        deep: list[list[Tensor]] = []
        for index, piece in enumerate(pieces):
            for start, features in piece.prompt.media:
                first, last = max(start, piece.begin), min(start + len(features.embeds), piece.end)
                if first >= last:
                    continue
                inside = slice(first - start, last - start)
                embeds[index, first - piece.begin : last - piece.begin] = features.embeds[inside].to(embeds)
                if features.kind == "image":
                    seen[index, first - piece.begin : last - piece.begin] = True
                    deep.append([layer[inside].to(embeds) for layer in features.deep])
        if not deep:
            return None, None
        return seen, [torch.cat(layer) for layer in zip(*deep, strict=True)]

    def next_tokens(self, tokens: Tensor, active: Sequence[int]) -> Tensor:
        """Continue the rows `active` by their tokens, int64 [rows] (others are ignored).

        Returns logits float [rows, V]; those of other rows mean nothing.
        """
        starts = torch.tensor([min(len(state.cells), self._cache.cells) for state in self._rows])
        positions = torch.tensor([state.next for state in self._rows])
        device = self._omni.device
        net = self._net
        out = net.model.language_model(
            inputs_embeds=net.get_input_embeddings()(tokens[:, None].to(device)),
            attention_mask=self._cache.place(starts, 1),
            position_ids=positions[None, :, None].expand(3, -1, -1).to(device),
            cache=self._cache,
            use_cache=True,
        )
        for row in active:
            self._rows[row].cells.append(int(tokens[row]))
            self._rows[row].next += 1
        return self._logits(out.last_hidden_state[:, -1])

    def sample(self, logits: Tensor, seeds: Tensor, numbers: Tensor, temperatures: Tensor) -> Tensor:
        """One token each, int64 [n], for `seeds`, token `numbers` and `temperatures` [n] of their sequences."""
        key = keys(seeds, numbers, 1)[TEXT_STREAM].to(logits.device)
        return draw(logits, key, temperatures.to(logits.device), self._omni.rules.text_top_k).cpu()

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._net.lm_head(hidden).float()
        return logits.masked_fill_(self._suppressed, -torch.inf)

    def heard(self, row: int, prompt: Prompt) -> Heard:
        """What the talker is given of a prompt that was read into `row`."""
        places = torch.tensor([index for index, spoken in enumerate(prompt.spoken) if spoken], dtype=torch.long)
        ids = torch.tensor(prompt.ids, dtype=torch.long)[places]
        tokens = self._omni.tokens
        media = (ids == tokens.audio) | (ids == tokens.image)
        understood = self._hidden[row, places[media].to(self._hidden.device)]
        return Heard(ids, media, understood, _renumbered(prompt, places))


def _renumbered(prompt: Prompt, places: Tensor) -> Tensor:
    """Rotary positions of the kept `places`, as if the others had never been there."""
    columns: list[Tensor] = []
    following = 0
    grids = {start: features for start, features in prompt.media if features.grid is not None}
    index = 0
    while index < len(places):
        image: Features | None = grids.get(int(places[index]))
        if image is None or image.grid is None:
            columns.append(torch.full((3, 1), following))
            following, index = following + 1, index + 1
        else:
            count = len(image.embeds)
            block = prompt.positions[:, places[index] : places[index] + count]
            columns.append(block - block.min() + following)
            following, index = following + max(image.grid), index + count
    return torch.cat(columns, 1) if columns else torch.zeros(3, 0, dtype=torch.long)


def _head_dim(config: object) -> int:
    declared = getattr(config, "head_dim", None)
    return int(declared or getattr(config, "hidden_size") // getattr(config, "num_attention_heads"))  # noqa: B009
