"""Geometry of a Moshi checkpoint, read from its own configuration and never from its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codec.mimi.fields import Fields
from codec.mimi.transformer import TransformerConfig

_SILENT = {
    "condition_provider": "conditioned models",
    "conditioners": "conditioned models",
    "lora": "weights that are not merged",
    "quantize": "quantized weights",
    "demux_second_text_stream": "two text streams",
    "demux_second_stream": "two text streams",
    "cross_attention": "cross attention",
    "extra_heads_num_heads": "extra heads",
}
"""Fields that must be absent, null, false, 0 or empty, and what they would ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthConfig:
    """The depth transformer, which says the codebooks of one frame one after the other."""

    dimension: int
    heads: int
    layers: int
    hidden: int
    """Width inside the gated feed-forward part."""
    schedule: tuple[int, ...]
    """Which set of weights each codebook uses."""
    shared_input: bool
    """One projection from the temporal transformer for all codebooks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoshiConfig:
    """All sizes of a Moshi model.

    Streams are, in this order: the inner text, the agent's `agent` codebooks, the user's `user` codebooks. `delays`,
    one for each stream, in frames: a code of frame t stands at position t + delay.
    """

    temporal: TransformerConfig
    depth: DepthConfig
    text_tokens: int
    """Size of the text vocabulary; its last id plus one begins the stream."""
    text_pad: int
    """Token of the inner text in a frame in which no word begins or goes on."""
    text_end_pad: int
    codebook_size: int
    agent: int
    user: int
    delays: tuple[int, ...]
    biased: bool
    """Output projections have a bias."""
    prompted: bool
    """It was taught to be given a voice and a role before a conversation, as PersonaPlex was."""
    depth_in_checkpoint: int
    """Codebooks that the checkpoint's depth transformer says; more than `agent` where it was taught to guess the user's
    too, which nobody needs who hears them."""

    @property
    def streams(self) -> int:
        return 1 + self.agent + self.user

    @property
    def longest_delay(self) -> int:
        return max(self.delays)

    @classmethod
    def read(cls, fields: Mapping[str, object]) -> MoshiConfig:
        """From a checkpoint's `config.json`. Raises ConfigInvalid.

        PersonaPlex's holds no sizes: it is the published model, whose depth transformer says all streams.
        """
        prompted = fields.get("model_type") == "personaplex"
        if prompted:
            fields = {**PUBLISHED, "dep_q": PUBLISHED["n_q"], **fields}
        f = Fields("moshi config", fields)
        for name, what in _SILENT.items():
            if fields.get(name):
                f.refuse(name, f"{what} are not supported; use a checkpoint without")
        f.demand("causal", True)
        f.demand("layer_scale", None)
        f.demand("gating", "silu")
        f.demand("norm", "rms_norm_f32")
        f.demand("positional_embedding", "rope")
        f.demand("norm_emb", False)
        f.demand("kv_repeat", 1)
        f.demand("depformer_pos_emb", "none")
        f.demand("depformer_gating", "silu")
        f.demand("depformer_layer_scale", None)
        f.demand("depformer_norm", None)
        f.demand("depformer_low_rank_embeddings", None)
        f.demand("depformer_weights_per_step", True)
        dimension = f.whole("dim")
        streams, depth_steps = f.whole("n_q"), f.whole("dep_q")
        delays = f.wholes("delays")
        if len(delays) != streams + 1 or min(delays) < 0:
            f.refuse(
                "delays", f"{list(delays)} must be {streams + 1} numbers from 0 on, one per stream and one for text"
            )
        if depth_steps < 1:
            f.refuse("dep_q", "0 means that this checkpoint has no voice; it cannot hold a voice session")
        agent = _agent_codebooks(f, streams, depth_steps, delays)
        schedule = tuple(range(depth_steps))
        if f.has("depformer_weights_per_step_schedule"):
            schedule = f.wholes("depformer_weights_per_step_schedule")
            if len(schedule) != depth_steps:
                f.refuse(
                    "depformer_weights_per_step_schedule", f"has {len(schedule)} entries for {depth_steps} codebooks"
                )
        heads, depth_heads = f.whole("num_heads"), f.whole("depformer_num_heads", f.whole("num_heads"))
        depth_dimension = f.whole("depformer_dim")
        for name, width, count in (
            ("num_heads", dimension, heads),
            ("depformer_num_heads", depth_dimension, depth_heads),
        ):
            if count < 1 or width % (2 * count):
                f.refuse(name, f"{count} heads cannot share {width} dimensions")
        scale = f.number("hidden_scale", 4.0)
        depth_hidden = f.whole("depformer_dim_feedforward", int(scale * depth_dimension))
        text_tokens = f.whole("text_card")
        pad = f.whole("existing_text_padding_id", 3)
        if not 0 <= pad < text_tokens:
            f.refuse("existing_text_padding_id", f"{pad} is not a token of the {text_tokens}")
        f.demand("text_card_out", text_tokens, None)
        return cls(
            temporal=TransformerConfig(
                dimension=dimension,
                heads=heads,
                layers=f.whole("num_layers"),
                hidden=_gated_width(dimension, int(scale * dimension)),
                context=f.whole("context"),
                period=f.number("max_period", 10_000.0),
                norm="rms",
                epsilon=1e-8,
                gated=True,
                scaled=False,
            ),
            depth=DepthConfig(
                dimension=depth_dimension,
                heads=depth_heads,
                layers=f.whole("depformer_num_layers", f.whole("num_layers")),
                hidden=_gated_width(depth_dimension, depth_hidden),
                schedule=schedule[:agent],
                shared_input=not f.flag("depformer_multi_linear", False),
            ),
            text_tokens=text_tokens,
            text_pad=pad,
            text_end_pad=f.whole("existing_text_end_padding_id", 0),
            codebook_size=f.whole("card"),
            agent=agent,
            user=streams - agent,
            delays=delays,
            biased=f.flag("bias_proj", False),
            prompted=prompted,
            depth_in_checkpoint=depth_steps,
        )

    @classmethod
    def published(cls) -> MoshiConfig:
        """The 7 B model."""
        return cls.read(PUBLISHED)

    @classmethod
    def tiny(cls) -> MoshiConfig:
        """The true architecture, narrow: for tests and demonstrations."""
        return cls.read(TINY)


def _agent_codebooks(f: Fields, streams: int, depth_steps: int, delays: tuple[int, ...]) -> int:
    """How many of the audio streams are the agent's.

    A depth transformer that says all streams was taught to guess the user's as well; then both have the same pattern.
    """
    if depth_steps < streams:
        return depth_steps
    half = streams // 2
    if depth_steps > streams or streams % 2 or delays[1 : 1 + half] != delays[1 + half :]:
        f.refuse("dep_q", f"{depth_steps} of {streams} streams leave none for the user; this checkpoint cannot listen")
    return half


def _gated_width(dimension: int, feedforward: int) -> int:
    """Width of each half of a gate, as the published models were built: about two thirds of the plain width."""
    return 21 * dimension // 8 if feedforward == 4 * dimension else 2 * feedforward // 3


PUBLISHED: Mapping[str, object] = {
    "dim": 4096,
    "text_card": 32_000,
    "existing_text_padding_id": 3,
    "n_q": 16,
    "dep_q": 8,
    "card": 2048,
    "num_heads": 32,
    "num_layers": 32,
    "hidden_scale": 4.125,
    "causal": True,
    "layer_scale": None,
    "context": 3000,
    "max_period": 10_000,
    "gating": "silu",
    "norm": "rms_norm_f32",
    "positional_embedding": "rope",
    "depformer_dim": 1024,
    "depformer_dim_feedforward": 4224,
    "depformer_num_heads": 16,
    "depformer_num_layers": 6,
    "depformer_layer_scale": None,
    "depformer_multi_linear": True,
    "depformer_context": 8,
    "depformer_max_period": 10_000,
    "depformer_gating": "silu",
    "depformer_pos_emb": "none",
    "depformer_weights_per_step": True,
    "delays": [0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1],
}
"""The geometry of the published 7 B model, in its own format."""

TINY: Mapping[str, object] = {
    **PUBLISHED,
    "dim": 64,
    "text_card": 64,
    "card": 64,
    "num_heads": 4,
    "num_layers": 2,
    "context": 100,
    "depformer_dim": 32,
    "depformer_dim_feedforward": 132,
    "depformer_num_heads": 2,
    "depformer_num_layers": 2,
}
"""The same shape, narrow."""
