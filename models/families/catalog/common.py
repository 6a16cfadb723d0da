"""What several families read in the same way from the configuration files of `transformers`."""

from __future__ import annotations

from codec.identity import CodecIdentity, CodecIdentityError

from ...checkpoint import Checkpoint, CheckpointError, Table
from ...descriptor import UNDETERMINED, Fact, Stated, stated


def config_of(checkpoint: Checkpoint) -> Table:
    """Its config.json. Raises CheckpointError."""
    table = checkpoint.table()
    if table is None:
        raise CheckpointError("config.json", "is not there; download the checkpoint again")
    return table


def model_type_of(checkpoint: Checkpoint) -> object:
    """`model_type` of its config.json; None where there is none. Raises CheckpointError."""
    table = checkpoint.table()
    return table.at("model_type") if table else None


def told(table: Table | None, **texts: str) -> str | None:
    """Such as "48 layers, width 2048": each text with the number of its field put in, as far as fields are there.

    Raises CheckpointError.
    """
    found = [text.format(number) for name, text in texts.items() if table and (number := table.integer(name))]
    return ", ".join(found) or None


def part(config: Table, path: str, **texts: str) -> Fact[str]:
    """`told` of the table at `path`, with its place as the source. Raises CheckpointError."""
    return stated(told(config.table(path) if path else config, **texts), config.where(path))


def codec_identity(
    where: str,
    name: str,
    version: str,
    sample_rate: int,
    hop: int,
    codebooks: int,
    entries: int,
    delays: tuple[int, ...],
) -> CodecIdentity:
    """The identity that the configuration at `where` describes. Raises CheckpointError for one that cannot be."""
    try:
        return CodecIdentity(name, version, sample_rate, hop, codebooks, entries, delays)
    except CodecIdentityError as error:
        raise CheckpointError(where, f"describes no codec that can be: {error}") from None


def transformer(config: Table, path: str) -> Fact[str]:
    """Size of the transformer whose configuration lies at `path` ("": the whole file). Raises CheckpointError."""
    return part(
        config,
        path,
        num_hidden_layers="{} layers",
        hidden_size="width {}",
        num_attention_heads="{} heads",
        num_key_value_heads="{} KV heads",
    )


def experts(config: Table, path: str) -> Fact[str]:
    """Mixture-of-experts routing at `path`. Raises CheckpointError."""
    return part(config, path, num_experts="{} experts", num_experts_per_tok="{} per token")


def context(config: Table, path: str = "max_position_embeddings") -> Fact[int]:
    """Positions that the backbone knows. Raises CheckpointError."""
    return stated(config.integer(path), config.where(path))


def named(config: Table, path: str) -> Fact[str]:
    """A part that the configuration names by a string. Raises CheckpointError."""
    value = config.text(path)
    return UNDETERMINED if value is None else Stated(value, config.where(path))
