"""The language model: text and audio streams of both speakers, summed into one sequence of frames."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codec.mimi.streams import Streams
from codec.mimi.transformer import RMSNorm, Transformer

from .config import MoshiConfig
from .depth import DepthTransformer


class MoshiLM(nn.Module):
    """Temporal and depth transformer with their embeddings and heads.

    `emb`: the tables of all audio streams below one another, each with one more row than its codebook has entries,
    which begins the stream.
    """

    def __init__(self, config: MoshiConfig) -> None:
        super().__init__()
        self.config = config
        width = config.temporal.dimension
        self.text_emb = nn.Embedding(config.text_tokens + 1, width)
        self.emb = nn.Embedding((config.agent + config.user) * (config.codebook_size + 1), width)
        self.transformer = Transformer(config.temporal)
        self.out_norm = RMSNorm(width, config.temporal.epsilon)
        self.text_linear = nn.Linear(width, config.text_tokens, bias=config.biased)
        self.depth = DepthTransformer(config)

    def initial(self, device: torch.device) -> Tensor:
        """What stands in every stream before its first token, int64 [streams]."""
        tokens = torch.full((self.config.streams,), self.config.codebook_size, device=device)
        tokens[0] = self.config.text_tokens
        return tokens

    def forward(self, tokens: Tensor, streams: Streams | None = None) -> tuple[Tensor, Tensor]:
        """Tokens int64 [batch, streams, T] to hidden [batch, T, dimension] and text logits [batch, T, text tokens].

        With `streams`, T is 1: the next frame of each.
        """
        rows = self.config.codebook_size + 1
        offsets = torch.arange(self.config.agent + self.config.user, device=tokens.device) * rows
        audio = F.embedding((tokens[:, 1:] + offsets[:, None]).transpose(1, 2), self.emb.weight).sum(dim=2)
        hidden = self.out_norm(self.transformer(audio + self.text_emb(tokens[:, 0]), streams))
        return hidden, self.text_linear(hidden)

    @classmethod
    def random(cls, config: MoshiConfig, *, seed: int = 0) -> MoshiLM:
        """With random weights that say many different things: for tests, benchmarks and demonstrations."""
        generator = torch.Generator().manual_seed(seed)
        model = cls(config)
        for name, weight in model.named_parameters():
            if weight.dim() < 2:
                weight.data.fill_(0.0 if name.endswith("bias") else 1.0)
            else:
                fan_in = 1 if "emb" in name else weight.shape[-1]
                weight.data.normal_(0, fan_in**-0.5, generator=generator)
        return model.requires_grad_(False).eval()
