"""transformers' MimiModel and ours on the same random weights; prints what differs as JSON."""

from __future__ import annotations

import json

import torch
from transformers import MimiConfig as TheirConfig
from transformers import MimiModel

from codec.mimi.config import MimiConfig
from codec.mimi.model import Mimi
from codec.mimi.streams import Streams

torch.set_num_threads(1)
torch.set_grad_enabled(False)

FRAMES = 30


def main() -> dict[str, object]:
    torch.manual_seed(0)
    config = TheirConfig(
        hidden_size=32,
        num_filters=4,
        num_hidden_layers=2,
        intermediate_size=64,
        num_attention_heads=2,
        num_key_value_heads=2,
        codebook_size=64,
        codebook_dim=16,
        vector_quantization_hidden_dimension=16,
        num_quantizers=8,
        upsample_groups=32,
        sliding_window=24,
    )
    theirs = MimiModel(config).eval()
    for name, weight in theirs.named_parameters():
        if "layer_scale" in name:
            weight.data.fill_(0.5)
        elif weight.dim() > 1:
            weight.data.normal_(0, weight[0].numel() ** -0.5)
    for name, buffer in theirs.named_buffers():
        if name.endswith("embed_sum"):
            buffer.normal_(0, 0.3)
        elif name.endswith("cluster_usage"):
            buffer.uniform_(0.5, 2.0)
    ours = Mimi.from_weights(theirs.state_dict(), MimiConfig.from_transformers(config.to_dict()))

    pcm = 0.2 * torch.randn(2, 1920 * FRAMES)
    codes = theirs.encode(pcm[:, None]).audio_codes
    whole = theirs.decode(codes).audio_values[:, 0]
    streams = Streams(ours.decoding, 2)
    mine, streamed, past = [], [], None
    for frame in range(FRAMES):
        part = codes[..., frame : frame + 1]
        streams.begin(torch.ones(2, dtype=torch.bool))
        mine.append(ours.decode(part, streams))
        streams.end()
        result = theirs.decode(part, decoder_past_key_values=past)
        past = result.decoder_past_key_values
        streamed.append(result.audio_values[:, 0])
    return {
        "codes_equal": (ours.encode(pcm) == codes).float().mean().item(),
        "distinct": [codes[:, book].unique().numel() for book in range(8)],
        "our_error": relative(torch.cat(mine, dim=-1), whole),
        "their_streaming_error": relative(torch.cat(streamed, dim=-1), whole),
    }


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((found - wanted).norm() / wanted.norm()).item()


if __name__ == "__main__":
    print(json.dumps(main()))
