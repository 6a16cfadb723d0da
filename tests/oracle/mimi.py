"""Mimi of the `moshi` package and ours on the same random weights; prints what differs as JSON."""

from __future__ import annotations

import copy
import json
import sys

import torch
from moshi.models import loaders

from codec.mimi.config import MimiConfig
from codec.mimi.model import Mimi
from codec.mimi.streams import Streams

torch.set_num_threads(1)
torch.set_grad_enabled(False)


def main(full: bool, frames: int, codebooks: int) -> dict[str, object]:
    torch.manual_seed(0)
    config = copy.deepcopy(loaders._mimi_config)
    if not full:
        config["seanet"].update(dimension=32, n_filters=4)
        config["quantizer"].update(dimension=16, n_q=codebooks, bins=64, input_dimension=32, output_dimension=32)
        config["transformer"].update(
            d_model=32, num_heads=2, num_layers=2, dim_feedforward=64, context=24, input_dimension=32
        )
        config["transformer"]["output_dimensions"] = [32]
    theirs = loaders.get_mimi(None, config, num_codebooks=codebooks)
    pcm = torch.randn(3, 1920 * frames) * 0.2
    make_visible(theirs, pcm)
    ours = Mimi.from_weights(theirs.state_dict(), MimiConfig.from_native(config), codebooks)

    # The package's ring is as long as its window, so that the first of a frame's two steps sees one step less than in a
    # whole sequence once it is full: beyond that point only its whole sequence is the reference.
    whole_codes = theirs.encode(pcm[:, None])
    whole_pcm = theirs.decode(whole_codes)[:, 0]
    encoding, decoding = Streams(ours.encoding, 3), Streams(ours.decoding, 3)
    everyone = torch.ones(3, dtype=torch.bool)
    streamed_codes, streamed_pcm, theirs_streamed = [], [], []
    with theirs.streaming(3):
        for frame in range(frames):
            encoding.begin(everyone)
            codes = ours.encode(pcm[:, frame * 1920 : (frame + 1) * 1920], encoding)
            encoding.end()
            decoding.begin(everyone)
            streamed_pcm.append(ours.decode(whole_codes[..., frame : frame + 1], decoding))
            decoding.end()
            streamed_codes.append(codes)
            theirs_streamed.append(theirs.decode(whole_codes[..., frame : frame + 1])[:, 0])
    mine = torch.cat(streamed_pcm, dim=-1)
    within = min(frames, config["transformer"]["context"] // 2) * 1920
    return {
        "codes_equal": (torch.cat(streamed_codes, dim=-1) == whole_codes).float().mean().item(),
        "distinct": [whole_codes[:, book].unique().numel() for book in range(codebooks)],
        "level": whole_pcm.std().item(),
        "pcm_error": (mine - whole_pcm).abs().max().item(),
        "pcm_error_to_their_stream": (mine - torch.cat(theirs_streamed, dim=-1))[:, :within].abs().max().item(),
    }


def make_visible(mimi: torch.nn.Module, pcm: torch.Tensor) -> None:
    """Codebooks start at zero and LayerScale near it: as they are, a comparison sees next to nothing."""
    for name, weight in mimi.named_parameters():
        if "layer_scale" in name:
            weight.data.fill_(0.5)
    latents = mimi.encode_to_latent(pcm[:, None], quantize=False).transpose(1, 2)
    for quantizer in (mimi.quantizer.rvq_first, mimi.quantizer.rvq_rest):
        rest = torch.matmul(latents, quantizer.input_proj.weight[..., 0].T).flatten(0, 1)
        for layer in quantizer.vq.layers:
            book = layer._codebook
            table = rest.mean(dim=0) + rest.std(dim=0) * torch.randn(book.codebook_size, book.dim)
            rest = rest - table[torch.cdist(rest, table).argmin(dim=-1)]
            book.cluster_usage.uniform_(0.5, 2.0)
            book.embedding_sum.copy_(table * book.cluster_usage[:, None])
            book.register_buffer("_embedding", None, persistent=False)


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
