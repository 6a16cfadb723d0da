"""Turns a Llama-type GGUF file (SmolLM2) into a CTranslate2 int8 model with a `tokenizer.json`, without torch.

A program of its own: it holds the weights as float32 several times over, and a process that has ended gives all of
that back, which a long-lived server that did the same would not. It prints `progress FRACTION` lines.

    python convert_gguf.py SOURCE.gguf TARGET_DIRECTORY

Formats: GGUF specification (ggml project), keys under `llama.` and `tokenizer.ggml.`; CTranslate2's
`TransformerDecoderModelSpec`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

Matrix = NDArray[np.float32]
Progress = Callable[[float], None]

_CONTROL_TOKEN = 3
"""`tokenizer.ggml.token_type` of a token that never comes from text."""


class ConversionError(Exception):
    """The file is not a model that this converter understands; the message says what is missing or different."""


class _Source:
    """Reads one GGUF file; tensors are dequantized one at a time, when asked for."""

    def __init__(self, path: Path) -> None:
        self._reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def _contents(self, key: str) -> object:
        field = self._reader.fields.get(key)
        if field is None:
            raise ConversionError(f"{key}: the GGUF file has no such key; a Llama-type model is needed")
        contents: object = field.contents()
        return contents

    def integer(self, key: str) -> int:
        value = self._contents(key)
        if not isinstance(value, int):
            raise ConversionError(f"{key}: {value!r} is not an integer")
        return value

    def number(self, key: str) -> float:
        value = self._contents(key)
        if not isinstance(value, (int, float)):
            raise ConversionError(f"{key}: {value!r} is not a number")
        return float(value)

    def text(self, key: str) -> str:
        value = self._contents(key)
        if not isinstance(value, str):
            raise ConversionError(f"{key}: {value!r} is not a string")
        return value

    def texts(self, key: str) -> list[str]:
        value = self._contents(key)
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise ConversionError(f"{key}: not a list of strings")
        return value

    def integers(self, key: str) -> list[int]:
        value = self._contents(key)
        if not isinstance(value, list) or not all(isinstance(entry, int) for entry in value):
            raise ConversionError(f"{key}: not a list of integers")
        return value

    def has(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> Matrix:
        """Float32, [out, in] for a matrix, [d] for a gain."""
        found = self._tensors.get(name)
        if found is None:
            raise ConversionError(f"{name}: the GGUF file has no such tensor")
        return np.asarray(dequantize(found.data, found.tensor_type), np.float32)


def _halves(weight: Matrix, heads: int) -> Matrix:
    """Rows of a query or key projection, from GGUF's rotary order to CTranslate2's.

    GGUF rotates neighbours (0,1), (2,3), ... of each head; with `rotary_interleave=False` CTranslate2 rotates row i
    with row i + d/2. Both are the same rotation on differently ordered rows.
    """
    pairs = weight.shape[0] // heads // 2
    return weight.reshape(heads, pairs, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def _specification(source: _Source, progress: Progress) -> transformer_spec.TransformerDecoderModelSpec:
    if (architecture := source.text("general.architecture")) != "llama":
        raise ConversionError(f"general.architecture: {architecture!r}; only 'llama' is converted")
    layers = source.integer("llama.block_count")
    heads = source.integer("llama.attention.head_count")
    kv_heads = source.integer("llama.attention.head_count_kv")
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        layers,
        heads,
        activation=common_spec.Activation.SWISH,
        pre_norm=True,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=False,
        rotary_base=source.number("llama.rope.freq_base"),
        num_heads_kv=kv_heads,
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = source.tensor("token_embd.weight")
    decoder.layer_norm.gamma = source.tensor("output_norm.weight")
    # SmolLM2 ties its output projection to the embeddings; such a file has no separate output tensor.
    tied = not source.has("output.weight")
    decoder.projection.weight = decoder.embeddings.weight if tied else source.tensor("output.weight")
    for index, layer in enumerate(decoder.layer):
        block = f"blk.{index}."
        query = _halves(source.tensor(f"{block}attn_q.weight"), heads)
        key = _halves(source.tensor(f"{block}attn_k.weight"), kv_heads)
        attention, feed_forward = layer.self_attention, layer.ffn
        attention.layer_norm.gamma = source.tensor(f"{block}attn_norm.weight")
        attention.linear[0].weight = np.concatenate([query, key, source.tensor(f"{block}attn_v.weight")])
        attention.linear[1].weight = source.tensor(f"{block}attn_output.weight")
        feed_forward.layer_norm.gamma = source.tensor(f"{block}ffn_norm.weight")
        feed_forward.linear_0.weight = source.tensor(f"{block}ffn_gate.weight")
        feed_forward.linear_0_noact.weight = source.tensor(f"{block}ffn_up.weight")
        feed_forward.linear_1.weight = source.tensor(f"{block}ffn_down.weight")
        progress(0.6 * (index + 1) / layers)
    spec.config.layer_norm_epsilon = source.number("llama.attention.layer_norm_rms_epsilon")
    return spec


def _tokenizer(source: _Source, tokens: list[str]) -> Tokenizer:
    """GPT-2 type byte-level BPE; SmolLM2 splits numbers into single digits first."""
    merges = [(left, right) for left, right in (merge.split(" ") for merge in source.texts("tokenizer.ggml.merges"))]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = source.integers("tokenizer.ggml.token_type")
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer


def convert(source: Path, target: Path, progress: Progress) -> None:
    """Write `model.bin`, `config.json`, `vocabulary.json` and `tokenizer.json` for `source` into `target`.

    `target` must exist. Raises ConversionError for a file that is not such a model.
    """
    reader = _Source(source)
    spec = _specification(reader, progress)
    tokens = reader.texts("tokenizer.ggml.tokens")
    spec.register_vocabulary(tokens)
    spec.config.bos_token = tokens[reader.integer("tokenizer.ggml.bos_token_id")]
    spec.config.eos_token = tokens[reader.integer("tokenizer.ggml.eos_token_id")]
    spec.config.unk_token = tokens[reader.integer("tokenizer.ggml.unknown_token_id")]
    spec.validate()
    spec.optimize(quantization="int8")
    progress(0.8)
    spec.save(str(target))
    _tokenizer(reader, tokens).save(str(target / "tokenizer.json"))
    progress(1.0)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="GGUF (Llama type) to a CTranslate2 int8 model with tokenizer.json")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        convert(chosen.source, chosen.target, lambda fraction: print(f"progress {fraction:.3f}", flush=True))
    except ConversionError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
