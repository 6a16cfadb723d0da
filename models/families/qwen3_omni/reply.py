"""One response on its way through the stages."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Literal

from sessions.core.context import ContextPart
from sessions.core.effects import StartResponse
from sessions.core.events import EngineDone, EngineDraft, EngineFailed, EngineStage, EngineText, Event
from sessions.core.timeline import Ticks, ticks_per_sample
from sessions.ports import Emit

from ..lane import ResponseLane
from .borders import Passages
from .code2wav import Track
from .media import Medium
from .omni import RATE
from .prompt import Features, Prompt
from .thinker import Heard
from .timing import WordTimes
from .words import Decoder

Phase = Literal["media", "row", "reading", "going"]
"""Waits for its media to be encoded, for a row, is being read, or is being answered."""


@dataclass(slots=True, eq=False)
class Need:
    """A medium of a context: its features, or what they will be made from. `name` is that of its content."""

    kind: Literal["audio", "image"]
    name: str
    medium: Medium | None = None
    features: Features | None = None


@dataclass(slots=True, eq=False)
class Reply:
    """What the stages know of one response. Only the engine's worker changes it, but for `stopped`."""

    request: StartResponse
    tenant: str
    lane: ResponseLane
    emit: Emit
    decoder: Decoder
    limit: int
    order: int
    passages: Passages
    phase: Phase = "media"
    needs: dict[ContextPart, Need] | None = None
    """Media of its context, once they were looked up."""
    row: int = -1
    prompt: Prompt = field(default_factory=Prompt.empty)
    read: int = 0
    tokens: list[int] = field(default_factory=list)
    thought: bool = False
    """Whether the thinker has said all that it will."""
    reason: Literal["completed", "max_output_tokens"] = "completed"
    heard: Heard | None = None
    """What the talker is given of the prompt, once that was read."""
    talking: bool = False
    frames: int = 0
    given: int = 0
    """Text tokens that the talker was given."""
    spoken: bool = False
    """Whether the talker has said all that it will."""
    track: Track = field(default_factory=Track)
    times: WordTimes = field(default_factory=WordTimes)
    stages: set[str] = field(default_factory=set)
    stopped: bool = False
    finished: bool = False

    @classmethod
    def of(
        cls,
        request: StartResponse,
        tenant: str,
        emit: Emit,
        decoder: Decoder,
        longest: int,
        order: int,
        passages: Passages,
    ) -> Reply:
        lane = ResponseLane(request.fence, request.response, request.credit, RATE, emit)
        asked = request.max_output_tokens
        limit = longest if asked is None else min(asked, longest)
        return cls(request, tenant, lane, emit, decoder, limit, order, passages)

    @property
    def seed(self) -> int:
        """What its sampling noise hangs on: the same in every run of the same session."""
        return zlib.crc32(f"{self.request.fence.session}/{self.request.response}".encode()) & 0x7FFFFFFF

    @property
    def speaks(self) -> bool:
        return self.request.modality == "audio"

    @property
    def urgency(self) -> tuple[int, int]:
        """Who has not been heard yet goes first, in order of arrival; then whoever would fall silent first."""
        return (1, self.lane.ahead) if "first_audio" in self.stages else (0, self.order)

    @property
    def may_talk(self) -> bool:
        """Whether its next frame can be made: its text is known so far, and the credit lasts."""
        known = self.thought or self.given < len(self.tokens)
        return self.talking and not self.spoken and known and self.lane.wants_audio

    @property
    def runnable(self) -> bool:
        """Whether a step would do anything for it."""
        if self.phase != "going" or not self.thought or not self.talking:
            return True
        return self.spoken or self.may_talk

    def stage(self, name: str) -> None:
        """The response reached a stage, told once."""
        if name not in self.stages:
            self.stages.add(name)
            self.post(EngineStage(self.request.fence, self.request.response, name))

    def post(self, event: Event) -> None:
        if not self.stopped:
            self.lane.post(event, last=isinstance(event, EngineDone | EngineFailed))

    def tell(self, text: str) -> None:
        """Text of the answer, as it comes."""
        if not text:
            return
        if self.speaks:
            self.times.text(text, self.lane.end)
            # Not by the lane, where it would wait for the sound before it.
            if not self.stopped:
                self.emit(EngineDraft(self.request.fence, self.request.response, text))
        else:
            self.post(EngineText(self.request.fence, self.request.response, text))

    def sound(self, pcm: bytes, last: bool) -> None:
        """The next stretch of its sound, mono int16. `last`: the words that have no sound yet lie in this one."""
        if self.stopped or not pcm:
            return
        begin = self.lane.end
        end: Ticks = begin + len(pcm) // 2 * ticks_per_sample(RATE)
        self.stage("first_audio")
        self.lane.say(pcm, self.times.rest(begin, end) if last else self.times.due(begin, end))

    def fail(self, code: str, message: str) -> None:
        self.post(EngineFailed(self.request.fence, self.request.response, code, message))
        self.finished = True

    def done(self) -> None:
        """Everything is made."""
        read, said = len(self.prompt), len(self.tokens)
        self.post(EngineDone(self.request.fence, self.request.response, self.reason, read, said))
        self.finished = True
