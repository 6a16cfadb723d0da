"""What a model graph is made of: nodes with ports, edges with placement and recovery, output streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .clocks import Clock
from .shapes import Shape
from .states import Placement, StateKind


class GraphError(ValueError):
    """A graph that cannot be. `where` names the node or edge; the message says what is wrong and what would do."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.where = where


class NodeKind(Enum):
    """What a node computes."""

    SOURCE = "source"
    """Where input enters; computes nothing."""
    TOKENIZER = "tokenizer"
    ENCODER = "encoder"
    PROJECTOR = "projector"
    AUTOREGRESSIVE = "autoregressive"
    DIFFUSION = "diffusion"
    CODEC_ENCODER = "codec encoder"
    CODEC_DECODER = "codec decoder"
    DECODER = "decoder"
    """Latents or discrete symbols into an image, video or sound, in one pass."""
    DETOKENIZER = "detokenizer"
    SYNTHESIS = "synthesis"
    """Text into sound in one pass."""
    CONTROL = "control"
    """The session's own decisions; no tensors."""


class Batching(Enum):
    """What decides which work of a node goes together: one class of workload each."""

    SEQUENCES = "active sequences, KV pages, token budget"
    MEDIA_LENGTH = "media length, resolution, frame window"
    LATENT_STEP = "latent shape, step, condition"
    CHUNK_DEADLINE = "chunk duration, playout deadline"
    SLOTS = "fixed slots, one step per tick"
    ONE_BY_ONE = "one request after the other"


class RecoveryKind(Enum):
    """What is done about a payload that was lost with the stage that held it."""

    RECOMPUTE = "recompute"
    REPLAY = "replay"
    """The sender keeps it until it is consumed, and sends it again."""
    LOSE = "lose"
    """It is gone; the session goes on without it."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How an edge recovers. `since` names the node from which a recomputation begins."""

    kind: RecoveryKind
    since: str | None = None

    def __str__(self) -> str:
        return f"{self.kind.value} from {self.since}" if self.since else self.kind.value


def recompute(since: str) -> Recovery:
    """Made again, beginning at the node `since`."""
    return Recovery(RecoveryKind.RECOMPUTE, since)


REPLAY = Recovery(RecoveryKind.REPLAY)
LOSE = Recovery(RecoveryKind.LOSE)


@dataclass(frozen=True, slots=True)
class Port:
    """What enters or leaves a node: a kind of state, its shape, its clock, and the range of its values."""

    state: StateKind
    shape: Shape
    clock: Clock | None = None
    """None: it comes once, not at a pace."""
    entries: str | int | None = None
    """Discrete values are in 0..entries-1; a symbol, or a number where it is known."""


def port(state: StateKind, shape: str, clock: Clock | None = None, entries: str | int | None = None) -> Port:
    """A port with its shape as it is written, "B,F,Q". Raises ShapeError."""
    return Port(state, Shape.parse(shape), clock, entries)


@dataclass(frozen=True, slots=True)
class Node:
    """A functional node. `batching`: its classes of workload; empty where it runs inside the step of node `within`."""

    name: str
    kind: NodeKind
    inputs: Mapping[str, Port] = field(default_factory=dict)
    outputs: Mapping[str, Port] = field(default_factory=dict)
    batching: tuple[Batching, ...] = ()
    within: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """From one node's output to another's input; both are written "node.port"."""

    source: str
    target: str
    placement: Placement
    recovery: Recovery | None = None
    loop: bool = False
    """A declared feedback: what one step makes is read by a later one."""

    @property
    def name(self) -> str:
        return f"{self.source} -> {self.target}"

    @property
    def source_node(self) -> str:
        return self.source.partition(".")[0]

    @property
    def target_node(self) -> str:
        return self.target.partition(".")[0]


class Medium(Enum):
    """What people get."""

    TEXT = "text"
    AUDIO = "audio"
    IMAGE = "image"
    VIDEO = "video"


class Readiness(Enum):
    """When an output may be delivered."""

    EACH_TOKEN = "with each token"
    EACH_FRAME = "with each frame"
    EACH_CHUNK = "with each chunk"
    EACH_CLAUSE = "with each clause"
    WHOLE = "when it is whole"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One output stream. `port` is "node.port"; `delay_frames`: frames that must follow before a frame is complete."""

    medium: Medium
    port: str
    ready: Readiness
    delay_frames: int = 0
