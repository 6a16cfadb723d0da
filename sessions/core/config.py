"""What a session is configured to do, free of any protocol's spelling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .timeline import Ticks, from_ms

TurnKind = Literal["server_vad", "semantic_vad"]
Modality = Literal["audio", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnConfig:
    """Turn taking. Durations in ms, because that is what people set; probabilities in 0..1."""

    kind: TurnKind = "server_vad"
    threshold: float = 0.5
    """Speech probability from which a window counts as speech (silence: 0.15 below)."""
    prefix_padding_ms: int = 300
    silence_ms: int = 500
    """`server_vad`: silence that ends a turn. `semantic_vad`: the shortest silence after which a turn may end."""
    max_silence_ms: int = 4000
    """`semantic_vad`: silence that ends a turn that still sounds unfinished."""
    end_of_turn_threshold: float = 0.5
    """`semantic_vad`: end-of-turn probability from which the turn is taken as finished."""
    commit_ms: int = 200
    """Speech over the agent that is an interruption by duration alone (`server_vad`)."""
    semantic_commit_ms: int = 608
    """The same for `semantic_vad`, unless the words heard so far are only a backchannel."""
    resume_ms: int = 160
    """Silence after a hold that lets the agent go on."""
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: int | None = None
    echo: float = 0.65
    """Likeness to what was played from which a window over the agent is its own voice coming back; above 1: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call; `parameters` is its JSON schema as JSON text."""

    name: str
    description: str = ""
    parameters: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """Everything a conversation needs to know about itself; replaced as a whole by `ConfigUpdate`."""

    instructions: str = ""
    modality: Modality = "audio"
    voice: str = "default"
    speed: float = 1.0
    turns: TurnConfig | None = field(default_factory=TurnConfig)
    """None: push to talk; the client commits its input and asks for responses itself."""
    responses: bool = True
    """False: the session only listens and transcribes. No engine is opened for it; holds for its whole life."""
    transcribe_input: bool = False
    """Whether the client is told what the user said (an engine that reads text gets it either way)."""
    transcript_logprobs: bool = False
    """Whether the client is also told how sure the recognizer was of each piece of it."""
    language: str = "en"
    denoise: bool = False
    """Whether the noise of the input is lowered before anything listens to it."""
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    """"auto", "none", "required", or the name of one tool."""
    max_output_tokens: int | None = None
    temperature: float = 0.8
    lead: Ticks = from_ms(200)
    """How far admission to the carrier may run ahead of playback."""
    frame: Ticks = from_ms(20)
    """Size of one admitted output frame."""
    credit: Ticks = from_ms(5000)
    """How far generation may run ahead of admission."""
    grace: Ticks = 0
    """How long the session waits for another carrier when it has lost its own; 0: it ends with its carrier."""
    tenant: str = ""
    """Whose session it is, where that is known; what is limited or kept apart is so by tenant."""
    recording_consent: Literal["", "given", "refused"] = ""
    """Whether the user agrees to be recorded, where the client has said."""
    greet_after_ms: int | None = None
    """The agent speaks first, once nobody has said anything for so long from the beginning on (0: at once)."""
    keys_pause_ms: int | None = None
    """Pressed keys become a turn of the user when no other one follows for so long, or at "#"; None: never, they are
    only told to the client."""
    keys_interrupt: bool = False
    """Whether a pressed key takes the floor from the agent."""
    labels: tuple[tuple[str, str], ...] = ()
    """What the session is about to others (the call that it belongs to); kept with its recording."""
    acknowledge_playback: bool = False
    """Whether each playback report is answered with what the ledger made of it."""
